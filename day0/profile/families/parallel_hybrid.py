"""Falcon-H1 and Granite 4: Mamba-2 beside attention in every layer, or in most layers in its place."""

from __future__ import annotations

from dataclasses import replace

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import ATTENTION_LEAVES, under
from day0.profile.families.family import Family
from day0.profile.families.granite import GRANITE_MOE_SHARED
from day0.profile.families.mamba_hybrid import BAMBA, KERNEL_CHOICES, mamba_names
from day0.profile.mixers_convolved import ParallelMixers
from day0.profile.profile import ActivationSpec, DenseFeedForward, FeedForward, GroupedQueryAttention, Mixer, ModelEnds
from day0.profile.read_feed_forward import read_activation
from day0.profile.read_layer_kinds import read_layer_kind
from day0.profile.read_linear import BAMBA_KEYS, read_mamba2
from day0.profile.read_mixers import GqaDefaults, read_gqa


def _read_falcon_mixer(reader: ConfigReader, index: int) -> Mixer:
    """Both mixers and the fixed factors around them."""
    hidden = reader.integer("hidden_size")
    # A width of its own counts before the factor on the hidden size.
    expanded = reader.integer("mamba_expand", 2) * hidden
    width = reader.integer("mamba_d_ssm", expanded) if _says_width(reader) else expanded
    state_space = replace(
        read_mamba2(reader, BAMBA_KEYS, width=width),
        norm=reader.flag("mamba_rms_norm", False),
        norm_first=reader.flag("mamba_norm_before_gate", True),
        proj_bias=reader.flag("mamba_proj_bias", False),
    )
    if reader.flag("projectors_bias", False) != state_space.proj_bias:
        raise InputError("differs from mamba_proj_bias, which is not known here", where=reader.where("projectors_bias"))
    return ParallelMixers(
        attention=read_gqa(reader, index, defaults=GqaDefaults(kv_heads=8)),
        state_space=state_space,
        attention_in=reader.number("attention_in_multiplier", 1.0),
        attention_out=reader.number("attention_out_multiplier", 1.0),
        key_scale=reader.number("key_multiplier", 1.0),
        state_in=reader.number("ssm_in_multiplier", 1.0),
        state_out=reader.number("ssm_out_multiplier", 1.0),
        projection_scales=_factors(reader, "ssm_multipliers", 5),
    )


def _says_width(reader: ConfigReader) -> bool:
    return reader.has("mamba_d_ssm")


def _factors(reader: ConfigReader, key: str, count: int) -> tuple[float, ...]:
    if not reader.has(key):
        return (1.0,) * count
    value = reader.values[key]
    numbers = isinstance(value, list) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in value)
    if not numbers or len(value) != count:
        raise InputError(f"must be {count} numbers, got {str(value)[:60]}", where=reader.where(key))
    return tuple(float(v) for v in value)


def _read_falcon_mlp(reader: ConfigReader, index: int) -> FeedForward:
    del index
    gate, down = _factors(reader, "mlp_multipliers", 2)
    return DenseFeedForward(
        reader.integer("intermediate_size", 14336),
        read_activation(reader),
        reader.flag("mlp_bias", False),
        gate_scale=gate,
        down_scale=down,
    )


def _falcon_ends(reader: ConfigReader) -> ModelEnds:
    return ModelEnds(
        embedding_scale=reader.number("embedding_multiplier", 1.0),
        logit_scale=reader.number("lm_head_multiplier", 1.0),
    )


FALCON_H1 = replace(
    BAMBA,
    name="falcon_h1",
    model_types=("falcon_h1",),
    architectures=("FalconH1ForCausalLM",),
    read_mixer=_read_falcon_mixer,
    read_feed_forward=_read_falcon_mlp,
    read_ends=_falcon_ends,
    names={
        **BAMBA.names,
        **mamba_names("layers.{l}.mixer.state_space", "model.layers.{l}.mamba"),
        **under("layers.{l}.mixer.attention", "model.layers.{l}.self_attn", ATTENTION_LEAVES),
    },
    inert=(*KERNEL_CHOICES, "mamba_use_mlp", "attn_layer_indices", "mlp_expansion_factor", "time_step_min"),
    # Its default, 8, would not make up the inner width.
    tiny={"mamba_d_head": 32},
)

_KINDS = {"mamba": True, "linear_attention": True, "attention": False, "full_attention": False}


def _read_granite_mixer(reader: ConfigReader, index: int) -> Mixer:
    """By kinds of layer; attention is rotated only where the config asks for it."""
    if read_layer_kind(reader, index, _KINDS, lambda i: True):
        width = reader.integer("mamba_expand", 2) * reader.integer("hidden_size")
        return read_mamba2(reader, replace(BAMBA_KEYS, defaults=_GRANITE_MAMBA), width=width)
    spec = GRANITE_MOE_SHARED.read_mixer(reader, index)
    assert isinstance(spec, GroupedQueryAttention)
    kind = reader.word("position_embedding_type", "nope") if reader.has("position_embedding_type") else "nope"
    return spec if kind == "rope" else replace(spec, rope=None)


_GRANITE_MAMBA = {**BAMBA_KEYS.defaults, "norm_eps": 1e-6}


def _read_granite_feed_forward(reader: ConfigReader, index: int) -> FeedForward:
    """Experts beside a shared MLP, or that MLP alone where there are no experts."""
    if reader.integer("num_local_experts", 8, minimum=0):
        return GRANITE_MOE_SHARED.read_feed_forward(reader, index)
    reader.ignore("num_experts_per_tok", "intermediate_size")
    return DenseFeedForward(reader.integer("shared_intermediate_size", 1024), _activation(reader))


def _activation(reader: ConfigReader) -> ActivationSpec:
    return read_activation(reader)


_LAYER = "model.layers.{l}"

GRANITE_HYBRID: Family = replace(
    GRANITE_MOE_SHARED,
    name="granitemoehybrid",
    model_types=("granitemoehybrid",),
    architectures=("GraniteMoeHybridForCausalLM",),
    native=True,
    read_mixer=_read_granite_mixer,
    read_feed_forward=_read_granite_feed_forward,
    names={
        **GRANITE_MOE_SHARED.names,
        **mamba_names("layers.{l}.mixer", f"{_LAYER}.mamba"),
        "layers.{l}.ffn.gate_up_proj.weight": f"{_LAYER}.shared_mlp.input_linear.weight",
        "layers.{l}.ffn.down_proj.weight": f"{_LAYER}.shared_mlp.output_linear.weight",
    },
    storage=replace(
        GRANITE_MOE_SHARED.storage,
        joined={
            **GRANITE_MOE_SHARED.storage.joined,
            "ffn.gate_up_proj": ("ffn.gate_proj", "ffn.up_proj"),
        },
    ),
    inert=(*KERNEL_CHOICES, "init_method", "normalization_function", "rope_theta", "rope_scaling", "rope_parameters"),
)

PARALLEL_HYBRIDS = (FALCON_H1, GRANITE_HYBRID)
