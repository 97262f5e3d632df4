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
)
# fmt: on
