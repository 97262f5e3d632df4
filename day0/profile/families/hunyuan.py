"""Hunyuan V1, dense and mixture of experts, normed queries and keys after the rotation; and V3, before it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, MLP_LEAVES, QWEN_MOE_NAMES, layer_names, under
from day0.profile.families.family import Family
from day0.profile.profile import FeedForward, GroupedQueryAttention, RoutedExperts, RouterSpec
from day0.profile.read_experts import ExpertLine, read_expert_line, routed_after, routed_by_words
from day0.profile.read_feed_forward import MAX_EXPERTS, checked_router, read_activation, read_dense
from day0.profile.read_gqa_variants import GqaLine, layer_value, read_gqa_line

_LINE = GqaLine(norm_after_rope=True)


def _attention(reader: ConfigReader, index: int) -> GroupedQueryAttention:
    reader.ignore("attention_head_dim")
    line = replace(_LINE, head_dim=reader.optional_integer("attention_head_dim"))
    spec = read_gqa_line(reader, index, line=line)
    return replace(spec, qk_norm="head" if reader.flag("use_qk_norm", True) else None)


def _experts(reader: ConfigReader, index: int) -> RoutedExperts:
    """Any of the sizes may be a list with one entry per layer."""
    dense_width = reader.integer("intermediate_size")
    width = layer_value(reader, "moe_intermediate_size", index, dense_width)
    router = RouterSpec(
        num_experts=min(layer_value(reader, "num_experts", index, 1), MAX_EXPERTS),
        top_k=layer_value(reader, "moe_topk", index, 1),
        scoring="softmax",
        renormalize=True,
    )
    return RoutedExperts(
        router=checked_router(reader, router, "moe_topk"),
        width=width,
        activation=read_activation(reader),
        shared_width=width * layer_value(reader, "num_shared_expert", index, 1, minimum=0),
    )


_NORMS = layer_names(
    {"mixer.q_norm.weight": "self_attn.query_layernorm.weight", "mixer.k_norm.weight": "self_attn.key_layernorm.weight"}
)
_INERT = ("eod_token_id", "mask_init_id", "org_vocab_size")
"""Tokens that training put between documents, and the vocabulary before it was padded."""

HUNYUAN_DENSE = Family(
    name="hunyuan_v1_dense",
    model_types=("hunyuan_v1_dense",),
    architectures=("HunYuanDenseV1ForCausalLM",),
    native=True,
    read_mixer=_attention,
    read_feed_forward=read_dense,
    norm_eps_default=1e-5,
    names={**LLAMA_NAMES, **_NORMS},
    inert=_INERT,
)

HUNYUAN_MOE = Family(
    name="hunyuan_v1_moe",
    model_types=("hunyuan_v1_moe",),
    architectures=("HunYuanMoEV1ForCausalLM",),
    native=True,
    read_mixer=_attention,
    read_feed_forward=_experts,
    norm_eps_default=1e-5,
    names={
        **LLAMA_NAMES,
        **_NORMS,
        **QWEN_MOE_NAMES,
        "layers.{l}.ffn.router.weight": "model.layers.{l}.mlp.gate.wg.weight",
        **under("layers.{l}.ffn.shared", "model.layers.{l}.mlp.shared_mlp", MLP_LEAVES),
    },
    # The shared expert is always there in this architecture.
    inert=(*_INERT, "use_mixed_mlp_moe"),
)

_V3_EXPERTS = ExpertLine(
    experts=("num_experts", "num_local_experts"),
    shared="num_shared_experts",
    shared_default=1,
    routed=routed_by_words(routed_after(1)),
    scoring="sigmoid",
    renormalize=True,
    correction_bias=True,
    scaling="router_scaling_factor",
)


def _v3_feed_forward(reader: ConfigReader, index: int) -> FeedForward:
    """`mlp_bias` is on dense and shared MLPs alone."""
    spec, bias = read_expert_line(reader, index, line=_V3_EXPERTS), reader.flag("mlp_bias", False)
    return replace(spec, shared_bias=bias) if isinstance(spec, RoutedExperts) else replace(spec, bias=bias)


HY_V3 = Family(
    name="hy_v3",
    model_types=("hy_v3",),
    architectures=("HYV3ForCausalLM",),
    native=True,
    read_mixer=partial(read_gqa_line, line=GqaLine(kv_heads=8, head_dim=128, theta=11158840.0, qk_norm="head")),
    read_feed_forward=_v3_feed_forward,
    norm_eps_default=1e-5,
    names={
        **LLAMA_NAMES,
        **QWEN_MOE_NAMES,
        "layers.{l}.ffn.router.weight": "model.layers.{l}.mlp.router.gate.weight",
        "layers.{l}.ffn.router.correction_bias": "model.layers.{l}.mlp.expert_bias",
        **under("layers.{l}.ffn.shared", "model.layers.{l}.mlp.shared_mlp", MLP_LEAVES),
    },
    # How the sum of the experts is rounded.
    inert=("enable_moe_fp32_combine",),
)

HUNYUANS = (HUNYUAN_DENSE, HUNYUAN_MOE, HY_V3)
