"""Llama 4: chunked attention with positions, full attention without, one expert a token beside a shared one."""

from __future__ import annotations

from dataclasses import replace

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, MLP_LEAVES, layer_names, under
from day0.profile.families.family import Family
from day0.profile.families.llama_vision import LLAMA4_TOWER_NAMES, read_llama4_tower
from day0.profile.profile import (
    DenseFeedForward,
    FeedForward,
    GroupedQueryAttention,
    QueryTemperature,
    RoutedExperts,
    RouterSpec,
)
from day0.profile.read_feed_forward import checked_router, read_activation, read_num_experts
from day0.profile.read_gqa_variants import LAYER_KINDS, GqaLine, LayerKind, read_gqa_line, rotated_by_list
from day0.profile.read_layer_kinds import read_layer_kind
from day0.profile.storage import Storage

_CHUNK = 8192


def _kind(reader: ConfigReader, index: int) -> LayerKind:
    """Layers with positions are chunked, by default, where there is a chunk size at all."""
    chunked = reader.has("attention_chunk_size") or "attention_chunk_size" not in reader.values

    def default(layer: int) -> LayerKind:
        return "chunked_attention" if chunked and rotated_by_list(reader, layer) else "full_attention"

    return read_layer_kind(reader, index, LAYER_KINDS, default)


_LINE = GqaLine(kv_heads=8, head_dim=128, theta=5e5, layout="interleaved", kind=_kind, rotated=rotated_by_list)


def _attention(reader: ConfigReader, index: int) -> GroupedQueryAttention:
    """Norms (without weight, after the rotation) are where positions are; growing queries are where they are not."""
    spec = read_gqa_line(reader, index, line=_LINE)
    normed, tuned = reader.flag("use_qk_norm", True), reader.flag("attn_temperature_tuning", True)
    temperature = QueryTemperature(reader.number("floor_scale", 8192), reader.number("attn_scale", 0.1), offset=1.0)
    chunk = reader.integer("attention_chunk_size", _CHUNK) if _kind(reader, index) == "chunked_attention" else None
    return replace(
        spec,
        window=chunk,
        chunked=chunk is not None,
        qk_norm="unit" if normed and spec.rope is not None else None,
        norm_after_rope=normed and spec.rope is not None,
        temperature=temperature if tuned and spec.rope is None else None,
    )


def _routed(reader: ConfigReader, index: int) -> bool:
    step = reader.integer("interleave_moe_layer_step", 1)
    if reader.has("moe_layers"):
        return index in reader.integers("moe_layers")
    return (index + 1) % step == 0


def _feed_forward(reader: ConfigReader, index: int) -> FeedForward:
    """Dense layers are `intermediate_size_mlp` wide, each expert and the shared one `intermediate_size`.

    What an expert reads is weighed by the sigmoid of its logit.
    """
    activation = read_activation(reader)
    dense, width = reader.integer("intermediate_size_mlp", 16384), reader.integer("intermediate_size", 8192)
    router = RouterSpec(
        num_experts=read_num_experts(reader, "num_local_experts", "num_experts"),
        top_k=reader.integer("num_experts_per_tok", 1),
        scoring="sigmoid",
        renormalize=False,
    )
    if not _routed(reader, index):
        return DenseFeedForward(dense, activation)
    return RoutedExperts(
        router=checked_router(reader, router),
        width=width,
        activation=activation,
        shared_width=width,
        weights_on_input=True,
    )


_NAMES = {
    **LLAMA_NAMES,
    **under("layers.{l}.ffn", "model.layers.{l}.feed_forward", MLP_LEAVES),
    **under("layers.{l}.ffn.shared", "model.layers.{l}.feed_forward.shared_expert", MLP_LEAVES),
    **layer_names(
        {
            "ffn.router.weight": "feed_forward.router.weight",
            "ffn.experts.gate_up.weight": "feed_forward.experts.gate_up_proj",
            "ffn.experts.down.weight": "feed_forward.experts.down_proj",
        }
    ),
}
_STORAGE = Storage(
    joined={"ffn.experts.gate_up": ("ffn.experts.gate", "ffn.experts.up")}, stacked_experts=True, input_first=True
)

LLAMA4_TEXT = Family(
    name="llama4_text",
    model_types=("llama4_text",),
    architectures=("Llama4ForCausalLM",),
    native=True,
    read_mixer=_attention,
    read_feed_forward=_feed_forward,
    norm_eps_default=1e-5,
    names=_NAMES,
    storage=_STORAGE,
)

LLAMA4 = Family(
    name="llama4",
    model_types=("llama4",),
    architectures=("Llama4ForConditionalGeneration",),
    native=True,
    text_section="text_config",
    read_mixer=_attention,
    read_feed_forward=_feed_forward,
    norm_eps_default=1e-5,
    read_vision=read_llama4_tower,
    names={**{ours: f"language_model.{theirs}" for ours, theirs in _NAMES.items()}, **LLAMA4_TOWER_NAMES},
    storage=_STORAGE,
    # Marks of images in the prompt: the prompt's renderer needs them, the decoder does not.
    inert=("boi_token_index", "eoi_token_index"),
)

LLAMA4S = (LLAMA4, LLAMA4_TEXT)
