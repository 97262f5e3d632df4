"""Gemma 4: wide global heads, values from keys, experts beside an MLP, layers that read earlier layers' cache."""

from __future__ import annotations

from dataclasses import replace

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, MLP_LEAVES, SANDWICH_NORMS, inside, layer_names, under
from day0.profile.families.family import Family
from day0.profile.families.gemma import MARKS
from day0.profile.families.gemma_towers import GEMMA4_TOWER_NAMES, read_gemma4_audio, read_gemma4_tower
from day0.profile.profile import (
    DenseFeedForward,
    FeedForward,
    GroupedQueryAttention,
    LayerSpec,
    ModelEnds,
    PerLayerInputs,
    Residual,
    RoutedExperts,
    RouterSpec,
    ScaledResidual,
)
from day0.profile.read_feed_forward import checked_router, read_activation, read_num_experts
from day0.profile.read_gqa_variants import LAYER_KINDS, LayerKind, check_groups, read_window
from day0.profile.read_layer_kinds import read_layer_kind
from day0.profile.read_positions import read_rope
from day0.profile.storage import Storage

_ROPES: dict[LayerKind, tuple[float, float]] = {"full_attention": (1e6, 0.25), "sliding_attention": (1e4, 1.0)}
"""Base and turning share of a head by kind of layer, where the config has no rotary section."""


def _kind(reader: ConfigReader, index: int) -> LayerKind:
    """Full attention in every sixth layer, and always in the last."""
    reader.ignore("sliding_window")
    last = reader.integer("num_hidden_layers") - 1
    kind = read_layer_kind(
        reader, index, LAYER_KINDS, lambda layer: "full_attention" if (layer + 1) % 6 == 0 else "sliding_attention"
    )
    return "full_attention" if index == last else kind


def _cache_of(reader: ConfigReader, index: int) -> int | None:
    """The last `num_kv_shared_layers` read the keys and values of the last layer of their kind before them."""
    layers, shared = reader.integer("num_hidden_layers"), reader.integer("num_kv_shared_layers", 0, minimum=0)
    first = layers - shared
    if index < first:
        return None
    for layer in range(first - 1, -1, -1):
        if _kind(reader, layer) == _kind(reader, index):
            return layer
    raise InputError(
        f"no layer before {first} is of the kind of layer {index}", where=reader.where("num_kv_shared_layers")
    )


def _own_sizes(
    reader: ConfigReader, index: int, width: int, kv_heads: int, *, full: bool, shared: bool
) -> tuple[int, int]:
    """Head width and key/value heads of one layer: by `per_layer_config` (transformers 5), else by kind of layer."""
    wide = reader.integer("global_head_dim", 512)
    of_full = reader.optional_integer("num_global_key_value_heads")
    sections = reader.section("per_layer_config")
    if sections is None:
        return (wide, of_full if shared and of_full is not None else kv_heads) if full else (width, kv_heads)
    sections.ignore_all()
    # Layers are keys with leading zeros ("05"); those without a section are as the model is.
    key = next((key for key in sections.values if key.isdecimal() and int(key) == index), None)
    own = sections.section(key) if key is not None else None
    if own is None:
        return width, kv_heads
    return own.integer("head_dim", width), own.integer("num_key_value_heads", kv_heads)


def _attention(reader: ConfigReader, index: int) -> GroupedQueryAttention:
    """Full attention has `global_head_dim`, and with `attention_k_eq_v` no projection of values and its own groups.

    Logits are not scaled: the norms on queries and keys do that.
    """
    kind = _kind(reader, index)
    full = kind == "full_attention"
    heads, kv_heads = reader.integer("num_attention_heads", 8), reader.integer("num_key_value_heads", 4)
    width, shared = reader.integer("head_dim", 256), reader.flag("attention_k_eq_v", False)
    width, kv_heads = _own_sizes(reader, index, width, kv_heads, full=full, shared=shared)
    check_groups(reader, heads, kv_heads)
    theta, fraction = _ROPES[kind]
    rope = read_rope(reader, width, theta=theta, kind=kind, fraction=fraction)
    bias = reader.flag("attention_bias", False)
    return GroupedQueryAttention(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=width,
        rope=rope,
        scale=1.0,
        qk_norm="head",
        qkv_bias=bias,
        o_bias=bias,
        window=None if full else read_window(reader, 512),
        values_are_keys=full and shared,
        value_norm=True,
        cache_of=_cache_of(reader, index),
    )


def _feed_forward(reader: ConfigReader, index: int) -> FeedForward:
    """A dense MLP in every layer, with experts beside it where `enable_moe_block` says so."""
    width = reader.integer("intermediate_size")
    activation = read_activation(reader, "hidden_activation", "gelu_pytorch_tanh")
    doubled = reader.flag("use_double_wide_mlp", False) and _cache_of(reader, index) is not None
    dense = DenseFeedForward(2 * width if doubled else width, activation)
    if not reader.flag("enable_moe_block", False):
        return dense
    router = RouterSpec(
        num_experts=read_num_experts(reader, "num_experts", "num_local_experts"),
        top_k=reader.integer("top_k_experts"),
        scoring="softmax",
        renormalize=True,
        scaled_input=True,
        expert_scales=True,
    )
    return RoutedExperts(
        router=checked_router(reader, router, "top_k_experts"),
        width=reader.integer("moe_intermediate_size"),
        activation=activation,
        parallel=dense,
    )


def _residual(reader: ConfigReader) -> Residual:
    del reader
    return ScaledResidual()


def _ends(reader: ConfigReader) -> ModelEnds:
    width, vocab = (
        reader.integer("hidden_size_per_layer_input", 256, minimum=0),
        reader.integer("vocab_size_per_layer_input", 262144),
    )
    return ModelEnds(
        embedding_scale=reader.integer("hidden_size") ** 0.5,
        per_layer=PerLayerInputs(width, vocab) if width else None,
        logit_softcap=reader.optional_number("final_logit_softcapping"),
    )


def _layer(reader: ConfigReader, layer: LayerSpec) -> LayerSpec:
    """Where layers have an input of their own, it has a norm as well."""
    if not reader.integer("hidden_size_per_layer_input", 256, minimum=0):
        return layer
    return replace(layer, norms=(*layer.norms, "layer_input_norm"))


_NAMES = {
    **LLAMA_NAMES,
    **SANDWICH_NORMS,
    "per_layer.embed.weight": "model.embed_tokens_per_layer.weight",
    "per_layer.proj.weight": "model.per_layer_model_projection.weight",
    "per_layer.norm.weight": "model.per_layer_projection_norm.weight",
    **under("layers.{l}.ffn.parallel", "model.layers.{l}.mlp", MLP_LEAVES),
    **layer_names(
        {
            "scale": "layer_scalar",
            "layer_input.gate.weight": "per_layer_input_gate.weight",
            "layer_input.proj.weight": "per_layer_projection.weight",
            "layer_input_norm.weight": "post_per_layer_input_norm.weight",
            "ffn.parallel_post_norm.weight": "post_feedforward_layernorm_1.weight",
            "ffn.experts_norm.weight": "pre_feedforward_layernorm_2.weight",
            "ffn.experts_post_norm.weight": "post_feedforward_layernorm_2.weight",
            "ffn.router.weight": "router.proj.weight",
            "ffn.router.scale": "router.scale",
            "ffn.router.expert_scale": "router.per_expert_scale",
            "ffn.experts.gate_up.weight": "experts.gate_up_proj",
            "ffn.experts.down.weight": "experts.down_proj",
        }
    ),
}

GEMMA4_TEXT = Family(
    name="gemma4_text",
    model_types=("gemma4_text",),
    architectures=("Gemma4ForCausalLM",),
    native=True,
    read_mixer=_attention,
    read_feed_forward=_feed_forward,
    read_residual=_residual,
    read_ends=_ends,
    finish_layer=_layer,
    norms=("mixer_norm", "mixer_post_norm", "ffn_norm", "ffn_post_norm"),
    tie_default=True,
    names=_NAMES,
    storage=Storage(joined={"ffn.experts.gate_up": ("ffn.experts.gate", "ffn.experts.up")}, stacked_experts=True),
    # Images and sounds may be seen in both directions; text, which is what is described here, is not. Sizes of experts
    # stand in configs without them too.
    inert=(
        "use_bidirectional_attention",
        "num_experts",
        "top_k_experts",
        "moe_intermediate_size",
        "expert_intermediate_size",
    ),
)

GEMMA4 = replace(
    GEMMA4_TEXT,
    name="gemma4",
    model_types=("gemma4",),
    architectures=("Gemma4ForConditionalGeneration",),
    text_section="text_config",
    read_vision=read_gemma4_tower,
    read_audio=read_gemma4_audio,
    names={**inside(_NAMES, "model.language_model."), **GEMMA4_TOWER_NAMES},
    inert=(
        *GEMMA4_TEXT.inert,
        *MARKS,
        "image_token_id",
        "audio_token_id",
        "video_token_id",
        "boa_token_id",
        "eoa_token_id",
        "eoa_token_index",
        "vision_soft_tokens_per_image",
    ),
)

GEMMA4S = (GEMMA4, GEMMA4_TEXT)
