"""Flint: sinks in every layer, windows with positions, full attention without, dense first layers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, MLP_LEAVES, QWEN_MOE_NAMES, under
from day0.profile.families.family import Family
from day0.profile.profile import GroupedQueryAttention
from day0.profile.read_experts import ExpertLine, read_expert_line, routed_by_step
from day0.profile.read_gqa_variants import LAYER_KINDS, GqaLine, LayerKind, read_gqa_line
from day0.profile.read_layer_kinds import read_layer_kind


def _kind(reader: ConfigReader, index: int) -> LayerKind:
    """Full attention in the first two layers, every fourth from the second on, and the last."""
    reader.ignore("sliding_window")
    last = reader.integer("num_hidden_layers") - 1

    def default(layer: int) -> LayerKind:
        return "full_attention" if layer < 2 or layer % 4 == 1 or layer == last else "sliding_attention"

    return read_layer_kind(reader, index, LAYER_KINDS, default)


def _slides(reader: ConfigReader, index: int) -> bool:
    return _kind(reader, index) == "sliding_attention"


_LINE = GqaLine(kv_heads=4, head_dim=128, qk_norm="head", kind=_kind, window=513, rotated=_slides)


def _attention(reader: ConfigReader, index: int) -> GroupedQueryAttention:
    return replace(read_gqa_line(reader, index, line=_LINE), sinks=True)


FLINT = Family(
    name="flint",
    model_types=("flint",),
    architectures=("FlintForCausalLM",),
    native=True,
    read_mixer=_attention,
    read_feed_forward=partial(
        read_expert_line,
        line=ExpertLine(
            experts=("num_experts", "num_local_experts"),
            shared="shared_expert_intermediate_size",
            shared_default=1024,
            shared_is_width=True,
            routed=routed_by_step(dense=(0, 1)),
            scoring="sigmoid",
            renormalize_default=True,
        ),
    ),
    names={
        **LLAMA_NAMES,
        **QWEN_MOE_NAMES,
        "layers.{l}.mixer.sinks": "model.layers.{l}.self_attn.softmax_offset",
        **under("layers.{l}.ffn.shared", "model.layers.{l}.mlp.shared_expert", MLP_LEAVES),
    },
)
