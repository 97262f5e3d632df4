"""Decoders with DeepSeek sparse attention in every layer: GLM-5, A.X K2 and, with hyper-connections, Hunyuan 4."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import STACKED_NAMES, layer_names
from day0.profile.families.deepseek import DERIVED, TRAINED_WITH
from day0.profile.families.family import Family
from day0.profile.families.latent import STACKED_EXPERTS
from day0.profile.families.latent_names import LATENT_NAMES, PREDICTOR_COPIES, with_predictors
from day0.profile.profile import LayerSpec, OutputGate, RoutedExperts
from day0.profile.read_hyper_connections import read_independent_connections
from day0.profile.read_latent import LatentDefaults
from day0.profile.read_predictors import following
from day0.profile.read_shared_experts import ExpertDefaults, read_shared_experts
from day0.profile.read_sparse import (
    IndexDefaults,
    every_fourth_indexer,
    read_sparse_everywhere,
    scheduled_indexers,
)

_GLM_MIXER = partial(
    read_sparse_everywhere,
    latent=LatentDefaults(),
    defaults=IndexDefaults(interleaved=True, runs=scheduled_indexers),
)
_GLM_EXPERTS = partial(read_shared_experts, defaults=ExpertDefaults(first_dense=3, scaling=2.5))

GLM_MOE_DSA = Family(
    name="glm_moe_dsa",
    native=True,
    model_types=("glm_moe_dsa",),
    architectures=("GlmMoeDsaForCausalLM",),
    read_mixer=_GLM_MIXER,
    read_feed_forward=_GLM_EXPERTS,
    read_mtp=following(_GLM_MIXER, _GLM_EXPERTS),
    norm_eps_default=1e-5,
    names=with_predictors(LATENT_NAMES),
    unread=PREDICTOR_COPIES,
    # No MLP has biases.
    inert=(*DERIVED, *TRAINED_WITH, "mlp_bias"),
)


def _gated_norms(reader: ConfigReader, layer: LayerSpec) -> LayerSpec:
    """Norms with a gate: the one before attention everywhere, the one before experts where there are some."""
    routed = isinstance(layer.feed_forward, RoutedExperts)
    return replace(
        layer,
        gated_norms=("mixer_norm", "ffn_norm") if routed else ("mixer_norm",),
        norm_gate_rank=reader.integer("gated_norm_rank", 16),
    )


_GATE_LEAVES = {"norm.weight": "norm.weight", "gate_down.weight": "W_down.weight", "gate_up.weight": "W_up.weight"}

AXK2 = Family(
    name="axk2",
    native=True,
    model_types=("axk2", "AXK2"),
    architectures=("AXK2ForCausalLM",),
    read_mixer=partial(
        read_sparse_everywhere,
        latent=LatentDefaults(output_gate=OutputGate(in_query=True), raw_query_latent=True),
        defaults=IndexDefaults(),
    ),
    read_feed_forward=partial(read_shared_experts, defaults=ExpertDefaults(first_dense=1, scaling=2.5)),
    finish_layer=_gated_norms,
    names={
        **LATENT_NAMES,
        **layer_names({f"mixer_norm.{ours}": f"input_layernorm.{theirs}" for ours, theirs in _GATE_LEAVES.items()}),
        **layer_names(
            {f"ffn_norm.{ours}": f"post_attention_layernorm.{theirs}" for ours, theirs in _GATE_LEAVES.items()}
        ),
    },
    inert=(*DERIVED, *TRAINED_WITH),
)

_MIXING = ("fn", "base", "scale")
_HUNYUAN_LAYER: Mapping[str, str] = {
    "mixer.g_proj.weight": "self_attn.linear_gate.weight",
    "mixer.sinks": "self_attn.learnable_sink_param",
    **{f"mixer_res.{leaf}": f"hc_attn_layer.hc_pre.hc_{leaf}" for leaf in _MIXING},
    **{f"ffn_res.{leaf}": f"hc_mlp_layer.hc_pre.hc_{leaf}" for leaf in _MIXING},
}

HY_V4 = Family(
    name="hy_v4",
    native=True,
    model_types=("hy_v4",),
    architectures=("HYV4ForCausalLM",),
    read_mixer=partial(
        read_sparse_everywhere,
        latent=LatentDefaults(interleaved=False, output_gate=OutputGate(), sinks=True),
        defaults=IndexDefaults(rope_last=True, norm_eps=None, runs=every_fourth_indexer),
    ),
    read_feed_forward=partial(
        read_shared_experts,
        defaults=ExpertDefaults(first_dense=1, scaling=2.827, limit=10.0, limit_everywhere=False),
    ),
    read_residual=read_independent_connections,
    norm_eps_default=1e-5,
    names={
        **LATENT_NAMES,
        **STACKED_NAMES,
        **layer_names(_HUNYUAN_LAYER),
        **{f"output_res.{leaf}": f"model.hc_head.hc_head_{leaf}" for leaf in _MIXING},
    },
    storage=STACKED_EXPERTS,
    # A starting value of the sinks in training.
    inert=(*DERIVED, *TRAINED_WITH, "learnable_sink_init"),
)

SPARSE_DECODERS = (GLM_MOE_DSA, AXK2, HY_V4)
