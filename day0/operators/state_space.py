"""Operators of state spaces and short convolutions, and the pointwise ones and norms around them."""

from __future__ import annotations

from day0.operators.contract import Operator, contract
from day0.operators.tolerance import CHAIN, POINTWISE, RECURRENCE, REDUCTION

# fmt: off
STATE_SPACE: tuple[Operator, ...] = (
    contract("causal_conv1d_bias", "state space", "causal_conv1d with a bias per channel before the activation",
             "x[tokens width]; weight[width taps]; bias[width]; state[states width past_taps]",
             "y[tokens width]; state_out[states width past_taps]", REDUCTION, "Mamba, arXiv 2312.00752",
             attributes="activation"),
    contract("selective_scan", "state space",
             "h = exp(dt A) h + dt B x, y = (C h + D x) silu(z) along a sequence; dt after softplus, A = -exp(a_log)",
             "x[tokens width]; dt[tokens width]; z[tokens width]; b[tokens state_size]; c[tokens state_size]; "
             "a_log[width state_size] float32; d[width] float32; dt_bias[width]; "
             "state[states width state_size] float32",
             "y[tokens width]; state_out[states width state_size] float32", RECURRENCE,
             "Mamba, arXiv 2312.00752", phases=("prefill",)),
    contract("selective_state_update", "state space", "selective_scan, one token at a time",
             "x[tokens width]; dt[tokens width]; z[tokens width]; b[tokens state_size]; c[tokens state_size]; "
             "a_log[width state_size] float32; d[width] float32; dt_bias[width]; "
             "state[states width state_size] float32",
             "y[tokens width]; state_out[states width state_size] float32", RECURRENCE,
             "Mamba, arXiv 2312.00752", phases=("decode",)),
    contract("ssd_chunk_scan", "state space",
             "selective_scan with one decay and one step size per head and b, c shared by groups, in chunks; no gate",
             "x[tokens heads head_dim]; dt[tokens heads]; b[tokens state_groups state_size]; "
             "c[tokens state_groups state_size]; a_log[heads] float32; d[heads] float32; dt_bias[heads] float32; "
             "state[states heads head_dim state_size] float32",
             "y[tokens heads head_dim]; state_out[states heads head_dim state_size] float32", RECURRENCE,
             "Mamba-2, arXiv 2405.21060", attributes="step_min step_max", phases=("prefill",)),
    contract("ssd_state_update", "state space", "ssd_chunk_scan, one token at a time",
             "x[tokens heads head_dim]; dt[tokens heads]; b[tokens state_groups state_size]; "
             "c[tokens state_groups state_size]; a_log[heads] float32; d[heads] float32; dt_bias[heads] float32; "
             "state[states heads head_dim state_size] float32",
             "y[tokens heads head_dim]; state_out[states heads head_dim state_size] float32", RECURRENCE,
             "Mamba-2, arXiv 2405.21060", attributes="step_min step_max", phases=("decode",)),
    contract("gated_group_rms_norm", "norm",
             "RMS norm of equal groups of channels with the gate silu(z), applied before or after the norm",
             "x[tokens width]; gate[tokens width]; weight[width]", "y[tokens width]", REDUCTION,
             "Mamba-2, arXiv 2405.21060", attributes="eps norm_groups gate_first"),
    contract("group_rms_norm", "norm", "RMS norm of equal groups of channels, a weight for each channel",
             "x[tokens width]; weight[width]", "y[tokens width]", REDUCTION, "arXiv 1910.07467",
             attributes="eps norm_groups"),
    contract("relu2", "activation", "squared rectifier", "x[tokens width]", "y[tokens width]", POINTWISE,
             "Primer, arXiv 2109.08668"),
    contract("multiply", "activation", "product of two tensors, element by element",
             "x[tokens width]; gate[tokens width]", "y[tokens width]", POINTWISE, "definition"),
    contract("weighed_residual_add", "residual", "skip times x plus branch times what the branch gave",
             "x[tokens width]; y[tokens width]", "out[tokens width]", POINTWISE,
             "MiniMax-01, arXiv 2501.08313", attributes="skip branch normed"),
    contract("affine_residual_add", "residual",
             "learnt scale and shift per channel on the stream and on the branch's output, then their sum in float32",
             "x[tokens width] float32; y[tokens width]; scale[width]; shift[width]; y_scale[width]; y_shift[width]",
             "out[tokens width] float32", POINTWISE, "ZAYA1"),
    contract("routed_experts_ungated", "experts",
             "MLP without a gate of each chosen expert (grouped GEMM), weighted sum",
             "x[tokens expert_in]; weights[tokens top_k] float32; ids[tokens top_k] int64; "
             "up[experts expert_width expert_in]; down[experts expert_in expert_width]",
             "y[tokens expert_in]", CHAIN, "Nemotron 3", attributes="activation weight_format"),
)
# fmt: on
