"""Operators of linear attention: what they carry from token to token has a fixed size."""

from __future__ import annotations

from day0.operators.contract import Operator, contract
from day0.operators.tolerance import POINTWISE, RECURRENCE, REDUCTION

# fmt: off
LINEAR_ATTENTION: tuple[Operator, ...] = (
    contract("causal_conv1d", "linear attention",
             "depthwise causal convolution with activation; the last taps - 1 inputs are the state",
             "x[tokens width]; weight[width taps]; state[states width past_taps]",
             "y[tokens width]; state_out[states width past_taps]", REDUCTION, "Mamba, arXiv 2312.00752",
             attributes="activation"),
    contract("kda_gate", "linear attention",
             "log decay per head and key channel (bounded sigmoid, or softplus), and write strength beta",
             "z[tokens heads head_dim]; a_log[heads] float32; dt_bias[heads head_dim] float32; b[tokens heads]",
             "g[tokens heads head_dim] float32; beta[tokens heads] float32", POINTWISE,
             "Kimi Linear, arXiv 2510.26692; Kimi K3",
             attributes="lower_bound"),
    contract("kda_chunk", "linear attention", "delta rule with decay per key channel, in chunks of a sequence",
             "q[tokens heads head_dim] float32; k[tokens heads head_dim] float32; v[tokens heads value_dim] float32; "
             "g[tokens heads head_dim] float32; beta[tokens heads] float32; "
             "state[states heads head_dim value_dim] float32",
             "y[tokens heads value_dim] float32; state_out[states heads head_dim value_dim] float32", RECURRENCE,
             "Kimi Linear, arXiv 2510.26692", attributes="scale", phases=("prefill",)),
    contract("kda_recurrent", "linear attention", "delta rule with decay per key channel, one token at a time",
             "q[tokens heads head_dim] float32; k[tokens heads head_dim] float32; v[tokens heads value_dim] float32; "
             "g[tokens heads head_dim] float32; beta[tokens heads] float32; "
             "state[states heads head_dim value_dim] float32",
             "y[tokens heads value_dim] float32; state_out[states heads head_dim value_dim] float32", RECURRENCE,
             "Kimi Linear, arXiv 2510.26692", attributes="scale", phases=("decode",)),
    contract("gated_delta_gate", "linear attention",
             "log decay per head, -exp(a_log) softplus(a + dt_bias), and write strength times sigmoid(b)",
             "a[tokens value_heads]; a_log[value_heads] float32; dt_bias[value_heads] float32; b[tokens value_heads]",
             "g[tokens value_heads] float32; beta[tokens value_heads] float32", POINTWISE,
             "Gated DeltaNet, arXiv 2412.06464", attributes="strength"),
    contract("gated_delta_chunk", "linear attention", "delta rule with one decay per head, in chunks of a sequence",
             "q[tokens key_heads head_dim] float32; k[tokens key_heads head_dim] float32; "
             "v[tokens value_heads value_dim]; g[tokens value_heads] float32; beta[tokens value_heads] float32; "
             "state[states value_heads head_dim value_dim] float32",
             "y[tokens value_heads value_dim]; state_out[states value_heads head_dim value_dim] float32", RECURRENCE,
             "Gated DeltaNet, arXiv 2412.06464", attributes="scale", phases=("prefill",)),
    contract("gated_delta_recurrent", "linear attention", "delta rule with one decay per head, one token at a time",
             "q[tokens key_heads head_dim] float32; k[tokens key_heads head_dim] float32; "
             "v[tokens value_heads value_dim]; g[tokens value_heads] float32; beta[tokens value_heads] float32; "
             "state[states value_heads head_dim value_dim] float32",
             "y[tokens value_heads value_dim]; state_out[states value_heads head_dim value_dim] float32", RECURRENCE,
             "Gated DeltaNet, arXiv 2412.06464", attributes="scale", phases=("decode",)),
    contract("lightning_chunk", "linear attention",
             "linear attention whose state of each head decays at a fixed rate, in chunks of a sequence",
             "q[tokens heads head_dim]; k[tokens heads head_dim]; v[tokens heads head_dim]; slope[heads] float32; "
             "state[states heads head_dim head_dim] float32",
             "y[tokens heads head_dim]; state_out[states heads head_dim head_dim] float32", RECURRENCE,
             "Lightning Attention-2, arXiv 2401.04658", phases=("prefill",)),
    contract("lightning_recurrent", "linear attention", "lightning_chunk, one token at a time",
             "q[tokens heads head_dim]; k[tokens heads head_dim]; v[tokens heads head_dim]; slope[heads] float32; "
             "state[states heads head_dim head_dim] float32",
             "y[tokens heads head_dim]; state_out[states heads head_dim head_dim] float32", RECURRENCE,
             "Lightning Attention-2, arXiv 2401.04658", phases=("decode",)),
)
# fmt: on
