"""Muse Glimmer and Muse Spark: gated attention, scaled logits, and in Spark gated residuals and latent experts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import (
    LLAMA_NAMES,
    QWEN_MOE_NAMES,
    SANDWICH_NORMS,
    STACKED_NAMES,
    inside,
    layer_names,
)
from day0.profile.families.family import Family
from day0.profile.families.muse_towers import (
    MUSE_AUDIO_NAMES,
    MUSE_TOWER_NAMES,
    read_muse_audio,
    read_muse_tower,
)
from day0.profile.profile import (
    FeedForward,
    GatedResidual,
    GroupedQueryAttention,
    LayerSpec,
    ModelEnds,
    OutputGate,
    Residual,
    RoutedExperts,
)
from day0.profile.read_experts import ExpertLine, read_expert_line, routed_by_words, routed_everywhere
from day0.profile.read_feed_forward import read_dense
from day0.profile.read_gqa_variants import LAYER_KINDS, GqaLine, LayerKind, read_gqa_line
from day0.profile.read_layer_kinds import read_layer_kind
from day0.profile.storage import Storage


def _fourth_from_last(reader: ConfigReader, layer: int) -> bool:
    return (reader.integer("num_hidden_layers") - 1 - layer) % 4 == 0


def _kind(reader: ConfigReader, index: int) -> LayerKind:
    """Full attention in every fourth layer, counted back from the last."""
    reader.ignore("sliding_window")
    return read_layer_kind(
        reader,
        index,
        LAYER_KINDS,
        lambda layer: "full_attention" if _fourth_from_last(reader, layer) else "sliding_attention",
    )


def _rotated(reader: ConfigReader, index: int) -> bool:
    """`layer_rope_theta` is 0 for layers without positions; the base of the others is the common one."""
    if not reader.has("layer_rope_theta"):
        return not _fourth_from_last(reader, index)
    thetas, layers = reader.numbers("layer_rope_theta"), reader.integer("num_hidden_layers")
    if len(thetas) != layers:
        raise InputError(f"{len(thetas)} entries for {layers} layers", where=reader.where("layer_rope_theta"))
    return thetas[index] != 0


_GLIMMER = GqaLine(kv_heads=2, head_dim=128, qk_norm="unit", kind=_kind, window=2048, rotated=_rotated)
_SPARK = replace(_GLIMMER, kv_heads=16, head_dim=64, theta=5e5)
_EXPERTS = ExpertLine(
    experts=("num_local_experts", "num_experts"),
    routed=routed_by_words(routed_everywhere),
    scoring="sigmoid",
    renormalize=True,
    correction_bias=True,
    scaling="routed_scaling_factor",
)


def _attention(
    reader: ConfigReader, index: int, *, line: GqaLine, query_scale: float, output_norm: bool
) -> GroupedQueryAttention:
    spec = read_gqa_line(reader, index, line=line)
    scale = spec.scale * reader.number("qk_scale_factor", query_scale)
    return replace(spec, scale=scale, output_gate=OutputGate(), output_norm=output_norm)


def _ends(reader: ConfigReader) -> ModelEnds:
    """`output_multiplier` is by default 16 over the root of the hidden size."""
    return ModelEnds(
        embedding_norm=True,
        logit_scale=reader.number("output_multiplier", 16.0 * reader.integer("hidden_size") ** -0.5),
        logit_softcap=reader.number("final_logit_softcapping", 20.0),
        plain_norm=True,
    )


def _spark_experts(reader: ConfigReader, index: int) -> FeedForward:
    spec = read_expert_line(reader, index, line=_EXPERTS)
    if not isinstance(spec, RoutedExperts):
        return spec
    router = replace(spec.router, logit_scale=_ends(reader).logit_scale)
    latent = reader.integer("moe_hidden_size", 4096)
    return replace(spec, router=router, latent_dim=latent, latent_input_norm=True, expert_norm=True)


def _spark_residual(reader: ConfigReader) -> Residual:
    return GatedResidual(reader.number("residual_gate_temperature", 0.3))


def _layer(reader: ConfigReader, layer: LayerSpec) -> LayerSpec:
    return replace(layer, post_norm_eps=reader.number("post_norm_eps", 1e-8))


def _spark_layer(reader: ConfigReader, layer: LayerSpec) -> LayerSpec:
    """The norm after attention has no weight."""
    return replace(_layer(reader, layer), unit_norms=("mixer_post_norm",))


_NORMS = ("mixer_norm", "mixer_post_norm", "ffn_norm", "ffn_post_norm")
_NAMES = {
    **LLAMA_NAMES,
    **SANDWICH_NORMS,
    "layers.{l}.mixer.g_proj.weight": "model.layers.{l}.self_attn.gate_proj.weight",
}
MUSE_GLIMMER = Family(
    name="muse_glimmer",
    model_types=("muse_glimmer",),
    architectures=("MuseGlimmerForConditionalGeneration",),
    native=True,
    text_section="text_config",
    read_mixer=partial(_attention, line=_GLIMMER, query_scale=3.87, output_norm=False),
    read_feed_forward=partial(read_dense, activation="hidden_activation"),
    read_ends=_ends,
    norms=_NORMS,
    norm_kind="rms_plus_one",
    finish_layer=_layer,
    norm_eps_default=1e-5,
    read_vision=read_muse_tower,
    names={**inside(_NAMES, "model.language_model."), **MUSE_TOWER_NAMES},
    # A joined patch has the channels of four.
    tiny={"out_hidden_size": 256, "projector_hidden_size": 96},
)

MUSE_SPARK = Family(
    name="muse_spark",
    model_types=("muse_spark",),
    architectures=("MuseSparkForConditionalGeneration",),
    text_section="text_config",
    read_mixer=partial(_attention, line=_SPARK, query_scale=5.4730064863875, output_norm=True),
    read_feed_forward=_spark_experts,
    read_residual=_spark_residual,
    read_ends=_ends,
    norms=("mixer_norm", "ffn_norm", "ffn_post_norm"),
    norm_kind="rms_plus_one",
    finish_layer=_spark_layer,
    norm_eps_default=1e-5,
    read_vision=read_muse_tower,
    read_audio=read_muse_audio,
    names={
        **inside(
            {
                **_NAMES,
                **QWEN_MOE_NAMES,
                **STACKED_NAMES,
                **layer_names(
                    {
                        "mixer_res.gate": "post_attention_residual_gate.gate",
                        "ffn_res.gate": "post_feedforward_residual_gate.gate",
                        "ffn.latent_down.weight": "mlp.pre_expert_proj.weight",
                        "ffn.latent_input_norm.weight": "mlp.pre_expert_norm.weight",
                        "ffn.latent_up.weight": "mlp.post_expert_proj.weight",
                        "ffn.experts.norm.weight": "mlp.experts.post_expert_norm.weight",
                    }
                ),
            },
            "model.language_model.",
        ),
        **MUSE_TOWER_NAMES,
        **MUSE_AUDIO_NAMES,
    },
    storage=Storage(joined={"ffn.experts.gate_up": ("ffn.experts.gate", "ffn.experts.up")}, stacked_experts=True),
    # A joined patch has the channels of four.
    tiny={
        "out_hidden_size": 256,
        "projector_hidden_size": 96,
        "audio_config.hidden_sizes": [16, 32, 48, 64],
    },
)

MUSES = (MUSE_GLIMMER, MUSE_SPARK)
