"""Operators of mixtures of experts."""

from __future__ import annotations

from day0.operators.contract import Operator, contract
from day0.operators.tolerance import CHAIN, REDUCTION

# fmt: off
EXPERTS: tuple[Operator, ...] = (
    contract("moe_router_topk_softmax", "experts", "softmax of the logits; the top_k largest and their weights",
             "logits[tokens experts] float32; bias[experts] float32",
             "weights[tokens top_k] float32; ids[tokens top_k] int64", REDUCTION,
             "Mixtral, arXiv 2401.04088",
             attributes="renormalize scaling_factor correction_bias num_groups topk_groups"),
    contract("moe_router_topk_sigmoid_bias", "experts",
             "sigmoid scores; chosen by score + bias (in the best groups, if limited), weighed by score",
             "logits[tokens experts] float32; bias[experts] float32",
             "weights[tokens top_k] float32; ids[tokens top_k] int64", REDUCTION,
             "DeepSeek-V3, arXiv 2412.19437",
             attributes="renormalize scaling_factor correction_bias num_groups topk_groups"),
    contract("routed_experts", "experts", "gated MLP of each chosen expert (grouped GEMM), weighted sum",
             "x[tokens expert_in]; weights[tokens top_k] float32; ids[tokens top_k] int64; "
             "gate[experts expert_width expert_in]; up[experts expert_width expert_in]; "
             "down[experts expert_in expert_width]",
             "y[tokens expert_in]", CHAIN, "Mixtral, arXiv 2401.04088", attributes="activation weight_format"),
)
# fmt: on
