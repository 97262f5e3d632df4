"""Operators of attention with short convolutions, and of routers that go with it."""

from __future__ import annotations

from day0.operators.contract import Operator, contract
from day0.operators.tolerance import MATMUL, POINTWISE, REDUCTION

# fmt: off
CONVOLVED: tuple[Operator, ...] = (
    contract("causal_head_conv1d", "attention", "causal convolution that mixes the channels of each head, with a bias",
             "x[tokens width]; weight[width head_dim taps]; bias[width]; state[states width past_taps]",
             "y[tokens width]; state_out[states width past_taps]", MATMUL, "CCA, arXiv 2510.04476"),
    contract("residual_causal_conv1d", "attention", "x plus its depthwise causal convolution, in float32",
             "x[tokens width]; weight[width taps] float32; state[states width past_taps]",
             "y[tokens width]; state_out[states width past_taps]", REDUCTION, "Inkling"),
    contract("query_key_mean", "attention",
             "half the sum of each query head and its key head before convolution, and its mean per key head",
             "q[tokens heads head_dim]; k[tokens kv_heads head_dim]",
             "q_mean[tokens heads head_dim]; k_mean[tokens kv_heads head_dim]", POINTWISE, "CCA, arXiv 2510.04476"),
    contract("unit_length_heads", "attention",
             "every head brought to length sqrt(head_dim), keys times a learnt number per head",
             "q[tokens heads head_dim]; k[tokens kv_heads head_dim]; key_scale[kv_heads]",
             "q_out[tokens heads head_dim]; k_out[tokens kv_heads head_dim]", REDUCTION, "CCA, arXiv 2510.04476"),
    contract("token_delay", "attention", "what the token before had in a row's place; the last row is the state",
             "x[tokens width]; state[states width]", "y[tokens width]; state_out[states width]", POINTWISE,
             "CCA, arXiv 2510.04476"),
    contract("paged_relative_attention", "attention",
             "causal softmax attention over cached keys and values with a bias per head and distance, r . profiles",
             "q[tokens heads head_dim]; r[tokens heads profiles]; bias[profiles extent]; "
             "k_cache[slots kv_heads head_dim]; v_cache[slots kv_heads head_dim]",
             "y[tokens heads head_dim]", MATMUL, "Inkling", attributes="scale window"),
    contract("log_temperature", "attention", "queries times 1 + growth x ln(max(1, (position + 1) / floor))",
             "q[tokens heads head_dim]; positions[tokens] int64", "y[tokens heads head_dim]", POINTWISE, "Inkling",
             attributes="floor growth"),
    contract("moe_router_topk_skip", "experts",
             "softmax over the experts and one choice that computes nothing; chosen by score + bias",
             "logits[tokens choices] float32; bias[choices] float32",
             "weights[tokens top_k] float32; ids[tokens top_k] int64", REDUCTION, "ZAYA1"),
    contract("moe_router_topk_shared", "experts",
             "sigmoid scores chosen by score + bias; those of the chosen and of the shared experts made to add up "
             "to scaling_factor x a learnt number",
             "logits[tokens choices] float32; bias[experts] float32; global_scale[single] float32",
             "weights[tokens top_k] float32; ids[tokens top_k] int64; shared[tokens shared_experts] float32",
             REDUCTION, "Inkling", attributes="scaling_factor"),
)
# fmt: on
