"""OLMo Hybrid: gated DeltaNet with a norm before each branch, attention with a norm after each."""

from __future__ import annotations

from dataclasses import replace

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, under
from day0.profile.families.family import Family
from day0.profile.mixers_linear import GatedDeltaNet
from day0.profile.profile import LayerSpec, Mixer
from day0.profile.read_feed_forward import read_dense
from day0.profile.read_layer_kinds import read_layer_kind
from day0.profile.read_linear import read_gated_delta_net
from day0.profile.read_mixers import GqaDefaults, read_gqa

_KINDS = {"linear_attention": True, "full_attention": False}
_OUTPUT_NORM_EPS = 1e-5
"""Epsilon of DeltaNet's output norm: the reference code passes a constant, not the config's."""


def _is_linear(reader: ConfigReader, index: int) -> bool:
    """All but every fourth layer; a model too shallow for a fourth ends in attention."""
    layers = reader.integer("num_hidden_layers")
    return read_layer_kind(reader, index, _KINDS, lambda i: i % 4 != 3 and not (layers < 4 and i == layers - 1))


def _read_mixer(reader: ConfigReader, index: int) -> Mixer:
    if not _is_linear(reader, index):
        spec = read_gqa(reader, index, defaults=GqaDefaults(qk_norm="all"))
        # Longer contexts were trained without positions: rotary parameters of null switch the rotation off.
        off = "rope_parameters" in reader.values and not reader.has("rope_parameters")
        return replace(spec, rope=None) if off else spec
    heads = reader.integer("num_attention_heads")
    keys = reader.integer("linear_num_key_heads", heads) if reader.has("linear_num_key_heads") else heads
    key_dim = int(0.75 * reader.integer("hidden_size") / keys)
    said = reader.integer("linear_key_head_dim", key_dim)
    return read_gated_delta_net(
        reader,
        defaults=(heads, heads, key_dim, 2 * said),
        norm_eps=_OUTPUT_NORM_EPS,
        negative=reader.flag("linear_allow_neg_eigval", True),
    )


def _place_norms(reader: ConfigReader, layer: LayerSpec) -> LayerSpec:
    del reader
    if isinstance(layer.mixer, GatedDeltaNet):
        return layer
    return replace(layer, norms=("mixer_post_norm", "ffn_post_norm"))


_DELTA = "model.layers.{l}.linear_attn"

OLMO_HYBRID = Family(
    name="olmo_hybrid",
    model_types=("olmo_hybrid",),
    architectures=("OlmoHybridForCausalLM",),
    native=True,
    read_mixer=_read_mixer,
    read_feed_forward=read_dense,
    finish_layer=_place_norms,
    names={
        **LLAMA_NAMES,
        "layers.{l}.mixer_norm.weight": "model.layers.{l}.attention_layer_norm.weight",
        "layers.{l}.ffn_norm.weight": "model.layers.{l}.feedforward_layer_norm.weight",
        "layers.{l}.mixer_post_norm.weight": "model.layers.{l}.post_attention_layernorm.weight",
        "layers.{l}.ffn_post_norm.weight": "model.layers.{l}.post_feedforward_layernorm.weight",
        **{f"layers.{{l}}.mixer.in_{name}_proj.weight": f"{_DELTA}.{name}_proj.weight" for name in "qkvba"},
        "layers.{l}.mixer.in_z_proj.weight": f"{_DELTA}.g_proj.weight",
        **{f"layers.{{l}}.mixer.{name}_conv.weight": f"{_DELTA}.{name}_conv1d.weight" for name in "qkv"},
        **under("layers.{l}.mixer", _DELTA, ("A_log", "dt_bias", "o_norm.weight")),
        "layers.{l}.mixer.out_proj.weight": f"{_DELTA}.o_proj.weight",
    },
    # How the decay was drawn.
    inert=(
        *("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor"),
        *("linear_use_gate", "fla_hybrid_attention_indices"),
    ),
)
