"""Operators of grouped-query decoders beyond the plain one: other softmaxes, norms, gates, experts and ends."""

from __future__ import annotations

from day0.operators.contract import Operator, contract
from day0.operators.tolerance import CHAIN, EXACT, MATMUL, POINTWISE, REDUCTION

_EXPERTS = (
    "x[tokens expert_in]; weights[tokens top_k] float32; ids[tokens top_k] int64; "
    "gate[experts expert_width expert_in]; up[experts expert_width expert_in]; "
    "down[experts expert_in expert_width]"
)

# fmt: off
GROUPED_QUERY: tuple[Operator, ...] = (
    contract("paged_gqa_attention_variant", "attention",
             "paged_gqa_attention with values of their own width, logits bounded to softcap x tanh(logit / softcap), "
             "a learnt sink per head in the denominator, or the window's start at its last multiple (chunked)",
             "q[tokens heads head_dim]; k_cache[slots kv_heads head_dim]; v_cache[slots kv_heads value_dim]; "
             "sinks[heads]",
             "y[tokens heads value_dim]", MATMUL, "gpt-oss; Gemma 2, arXiv 2408.00118; Llama 4; MiMo-V2",
             attributes="scale window chunked sinks softcap"),
    contract("cross_attention", "attention",
             "softmax attention of text to another encoder's rows; rows of other images are masked",
             "q[tokens heads head_dim]; k[merged kv_heads head_dim]; v[merged kv_heads head_dim]",
             "y[tokens heads head_dim]", MATMUL, "Llama 3.2 Vision", attributes="scale"),
    contract("multi_axis_rope_table", "attention",
             "cos and sin where positions have three axes: sections tells which axis turns which channel pairs",
             "positions[tokens position_axes] int64", "cos[tokens rope_pairs] float32; sin[tokens rope_pairs] float32",
             MATMUL, "Qwen2-VL, arXiv 2409.12191", attributes="theta scaling sections interleaved"),
    contract("softplus_gate", "attention", "x times log(1 + exp(gate)), taken in float32",
             "x[tokens width]; gate[tokens width]", "y[tokens width]", POINTWISE, "Laguna"),
    contract("head_softplus_gate", "attention", "every head's output times log(1 + exp) of one number, in float32",
             "x[tokens heads head_dim]; gate[tokens heads]", "y[tokens heads head_dim]", POINTWISE, "Laguna"),
    contract("tanh_gate", "residual", "a branch's output times tanh of a learnt number",
             "x[tokens width]; gate[single]", "y[tokens width]", POINTWISE, "Flamingo, arXiv 2204.14198"),
    contract("softcap", "activation", "cap x tanh(x / cap)",
             "x[tokens width]", "y[tokens width]", POINTWISE, "Gemma 2, arXiv 2408.00118", attributes="softcap"),
    contract("unit_rms_norm", "norm", "x over its root mean square, without a weight; x may be one head's channels",
             "x[tokens width]", "y[tokens width]", REDUCTION, "arXiv 1910.07467", attributes="eps"),
    contract("rms_norm_plus_one", "norm", "RMS norm whose weight is stored less one; the product is rounded once",
             "x[tokens width]; weight[width]", "y[tokens width]", REDUCTION, "Gemma, arXiv 2403.08295",
             attributes="eps"),
    contract("layer_norm_without_bias", "norm", "x less its mean, over its standard deviation, times a weight",
             "x[tokens width]; weight[width]", "y[tokens width]", REDUCTION, "arXiv 1607.06450; Cohere",
             attributes="eps"),
    contract("learnt_scale", "residual", "the stream times one learnt number",
             "x[tokens width]; scale[single]", "y[tokens width]", POINTWISE, "Gemma 4"),
    contract("gated_residual_add", "residual",
             "a x + b branch with b = sigmoid(gate / temperature) and a = sqrt(max(1 - b^2, eps)), in float32",
             "x[tokens width]; branch[tokens width]; gate[width] float32", "y[tokens width]", POINTWISE, "Muse Spark",
             attributes="temperature eps"),
    contract("swiglu_oai_and_mul", "activation",
             "g sigmoid(alpha g) (u + 1), with g clamped at limit from above and u on both sides",
             "gate[tokens width]; up[tokens width]", "y[tokens width]", POINTWISE, "gpt-oss",
             attributes="alpha limit"),
    contract("moe_router_topk_logit_bias", "experts",
             "chosen by logit + bias, weighed by sigmoid of the logit",
             "logits[tokens experts] float32; bias[experts] float32",
             "weights[tokens top_k] float32; ids[tokens top_k] int64", REDUCTION, "Kolibri 1",
             attributes="renormalize scaling_factor"),
    contract("moe_expert_scale", "experts", "each chosen expert's weight times a learnt number",
             "weights[tokens top_k] float32; ids[tokens top_k] int64; scale[experts]",
             "out[tokens top_k] float32", POINTWISE, "Gemma 4"),
    contract("biased_routed_experts", "experts", "gated MLP with biases of each chosen expert, weighted sum",
             f"{_EXPERTS}; gate_bias[experts expert_width]; up_bias[experts expert_width]; "
             "down_bias[experts expert_in]",
             "y[tokens expert_in]", CHAIN, "gpt-oss", attributes="activation weight_format"),
    contract("input_weighted_experts", "experts",
             "gated MLP of each chosen expert, which reads x times its weight; plain sum",
             _EXPERTS, "y[tokens expert_in]", CHAIN, "Llama 4", attributes="activation weight_format"),
    contract("normed_routed_experts", "experts",
             "gated MLP of each chosen expert, its output normed by one weight that all share, weighted sum",
             f"{_EXPERTS}; norm_weight[expert_in]", "y[tokens expert_in]", CHAIN, "Muse Spark",
             attributes="activation weight_format eps"),
    contract("biased_lm_head", "linear", "logits of the wanted rows with a bias per token, kept as float32",
             "x[wanted width]; weight[vocab width]; bias[vocab]", "logits[wanted vocab]", MATMUL, "definition"),
    contract("per_layer_embedding_lookup", "embedding",
             "rows of a second table by token id: the inputs of all layers, one after another",
             "ids[tokens] int64; weight[vocab width]", "y[tokens width]", EXACT, "Gemma 3n"),
)
# fmt: on
