"""MiniMax M2: norms over all heads together, half-rotated heads, experts chosen by sigmoid and bias."""

from __future__ import annotations

from dataclasses import replace

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, experts, predictor_names
from day0.profile.families.family import Family
from day0.profile.feed_forward import FeedForward
from day0.profile.profile import GroupedQueryAttention, MultiTokenPrediction
from day0.profile.read_experts import ExpertLine, read_expert_line
from day0.profile.read_gqa_variants import GqaLine, read_gqa_line
from day0.profile.read_predictors import read_predictors

_LINE = GqaLine(kv_heads=8, head_dim=128, theta=5e6, bias_key=None, qk_norm="all")


def narrowed(reader: ConfigReader, spec: GroupedQueryAttention) -> GroupedQueryAttention:
    """The same with `rotary_dim` channels of a head rotated, where the config gives no fraction."""
    assert spec.rope is not None
    dim = reader.optional_integer("rotary_dim", minimum=2)
    if dim is not None and spec.rope.dim == spec.head_dim:
        if dim > spec.head_dim or dim % 2:
            raise InputError(f"cannot rotate {dim} of {spec.head_dim} channels", where=reader.where("rotary_dim"))
        spec = replace(spec, rope=replace(spec.rope, dim=dim))
    return spec


def _attention(reader: ConfigReader, index: int) -> GroupedQueryAttention:
    spec = narrowed(reader, read_gqa_line(reader, index, line=_LINE))
    normed = reader.flag("use_qk_norm", True)
    reader.choice("qk_norm_type", {"per_layer": "all"}, "per_layer")
    return spec if normed else replace(spec, qk_norm=None)


_EXPERTS = ExpertLine(
    experts=("num_local_experts", "num_experts"),
    width="intermediate_size",
    scoring="sigmoid",
    renormalize=True,
    correction_bias=True,
)


def _experts(reader: ConfigReader, index: int) -> FeedForward:
    """Releases say 0 for the width of shared experts, and no definition says what the tensors of others are called."""
    shared = reader.integer("shared_intermediate_size", 0, minimum=0)
    if shared:
        raise InputError(
            f"shared experts of {shared} channels: MiniMax M2 has none, nor names for them",
            where=reader.where("shared_intermediate_size"),
            hint="0",
        )
    return read_expert_line(reader, index, line=_EXPERTS)


def _predictors(reader: ConfigReader) -> MultiTokenPrediction | None:
    """`num_mtp_modules` predictors, each of one layer (`mtp_transformer_layers`)."""
    if not reader.flag("use_mtp", False):
        return None
    depth = reader.integer("mtp_transformer_layers", 1)
    if depth != 1:
        raise InputError(
            f"predictors of {depth} layers are not known here", where=reader.where("mtp_transformer_layers")
        )
    return read_predictors(reader, key="num_mtp_modules", mixer=_attention, feed_forward=_experts, numbered_on=True)


_MOE = "model.layers.{l}.block_sparse_moe"
_NAMES = {
    **LLAMA_NAMES,
    "layers.{l}.ffn.router.weight": f"{_MOE}.gate.weight",
    "layers.{l}.ffn.router.correction_bias": f"{_MOE}.e_score_correction_bias",
    **experts(f"{_MOE}.experts.{{expert}}", {"gate": "w1", "up": "w3", "down": "w2"}),
}

MINIMAX_M2 = Family(
    name="minimax_m2",
    model_types=("minimax_m2",),
    architectures=("MiniMaxM2ForCausalLM",),
    native=True,
    read_mixer=_attention,
    read_feed_forward=_experts,
    read_mtp=_predictors,
    names={
        **_NAMES,
        **predictor_names(
            _NAMES,
            "model.layers.{l}",
            {
                "embed_norm.weight": "enorm.weight",
                "hidden_norm.weight": "hnorm.weight",
                "join_proj.weight": "eh_proj.weight",
                "norm.weight": "shared_head.norm.weight",
            },
        ),
    },
    # The architecture fixes the scores, their bias and full softmax attention in every layer (1 in the list).
    inert=("scoring_func", "use_routing_bias", "attn_type_list", "sliding_window"),
)
