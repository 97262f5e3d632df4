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
    contract("moe_router_group_best_softmax", "experts",
             "softmax of the logits; the top_k largest within the groups whose best is largest",
             "logits[tokens experts] float32; bias[experts] float32",
             "weights[tokens top_k] float32; ids[tokens top_k] int64", REDUCTION, "DeepSeek-V2, arXiv 2405.04434",
             attributes="renormalize scaling_factor correction_bias num_groups topk_groups"),
    contract("moe_router_topk_sigmoid_bias", "experts",
             "sigmoid scores; chosen by score + bias (in the best groups, if limited), weighed by score",
             "logits[tokens experts] float32; bias[experts] float32",
             "weights[tokens top_k] float32; ids[tokens top_k] int64", REDUCTION,
             "DeepSeek-V3, arXiv 2412.19437",
             attributes="renormalize scaling_factor correction_bias num_groups topk_groups"),
    contract("moe_router_topk_sqrtsoftplus_bias", "experts",
             "scores sqrt(log(1 + exp(logit))); chosen by score + bias, weighed by score",
             "logits[tokens experts] float32; bias[experts] float32",
             "weights[tokens top_k] float32; ids[tokens top_k] int64", REDUCTION, "DeepSeek-V4",
             attributes="renormalize scaling_factor correction_bias num_groups topk_groups"),
    contract("moe_router_sparsemixer", "experts",
             "one expert at a time: the largest logit, weighed by softmax over the logits near enough to it",
             "logits[tokens experts] float32; bias[experts] float32",
             "weights[tokens top_k] float32; ids[tokens top_k] int64", REDUCTION, "SparseMixer-v2, arXiv 2409.12136",
             attributes="renormalize scaling_factor correction_bias num_groups topk_groups"),
    contract("moe_router_hash", "experts",
             "the experts that a table has for a token's id, weighed by their scores of the logits",
             "logits[tokens experts] float32; token_ids[tokens] int64; table[table_rows top_k] int64",
             "weights[tokens top_k] float32; ids[tokens top_k] int64", REDUCTION, "DeepSeek-V4",
             attributes="scoring renormalize scaling_factor"),
    contract("routed_experts", "experts", "gated MLP of each chosen expert (grouped GEMM), weighted sum",
             "x[tokens expert_in]; weights[tokens top_k] float32; ids[tokens top_k] int64; "
             "gate[experts expert_width expert_in]; up[experts expert_width expert_in]; "
             "down[experts expert_in expert_width]",
             "y[tokens expert_in]", CHAIN, "Mixtral, arXiv 2401.04088", attributes="activation weight_format"),
)
# fmt: on
