"""Decoders with latent attention in every layer: MiniCPM3, Youtu, Mistral 4, GLM-4.7 Flash, A.X K1."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import STACKED_NAMES, layer_names
from day0.profile.families.deepseek import DERIVED, TRAINED_WITH, read_plain_latent
from day0.profile.families.family import Family
from day0.profile.families.latent_names import LATENT_NAMES, PREDICTOR_COPIES, with_predictors
from day0.profile.profile import LayerSpec, ModelEnds, PlainResidual, Residual, RoutedExperts
from day0.profile.read_feed_forward import read_dense
from day0.profile.read_latent import LatentDefaults
from day0.profile.read_predictors import following
from day0.profile.read_shared_experts import ExpertDefaults, read_shared_experts
from day0.profile.storage import Storage

STACKED_EXPERTS = Storage(joined={"ffn.experts.gate_up": ("ffn.experts.gate", "ffn.experts.up")}, stacked_experts=True)
"""All experts of a layer in two tensors, gate and up joined."""


def _depth_scaled(reader: ConfigReader) -> Residual:
    """Branches count less the deeper the model is; without `scale_depth` as they are."""
    if "scale_depth" in reader.values and not reader.has("scale_depth"):
        return PlainResidual()
    return PlainResidual(branch_scale=reader.number("scale_depth", 1.4) / reader.integer("num_hidden_layers") ** 0.5)


def _width_scaled(reader: ConfigReader) -> ModelEnds:
    """Embeddings times `scale_emb`; logits over the model's width in units of the width it was tuned at."""
    hidden = reader.integer("hidden_size")
    unscaled = "dim_model_base" in reader.values and not reader.has("dim_model_base")
    base = hidden if unscaled else reader.integer("dim_model_base", 256)
    return ModelEnds(embedding_scale=reader.number("scale_emb", 12.0), logit_scale=base / hidden)


MINICPM3 = Family(
    name="minicpm3",
    native=True,
    model_types=("minicpm3",),
    architectures=("MiniCPM3ForCausalLM",),
    read_mixer=partial(read_plain_latent, defaults=LatentDefaults(interleaved=False, value_dim_of_hidden=True)),
    read_feed_forward=partial(read_dense, bias_key="mlp_bias"),
    read_residual=_depth_scaled,
    read_ends=_width_scaled,
    norm_eps_default=1e-5,
    tie_default=True,
    names=LATENT_NAMES,
    inert=DERIVED,
)

YOUTU = Family(
    name="youtu",
    native=True,
    model_types=("youtu",),
    architectures=("YoutuForCausalLM",),
    read_mixer=read_plain_latent,
    read_feed_forward=read_dense,
    tie_default=True,
    names=LATENT_NAMES,
    inert=(*DERIVED, "embedding_initializer_range"),
)

MISTRAL4 = Family(
    name="mistral4",
    native=True,
    model_types=("mistral4",),
    architectures=("Mistral4ForCausalLM",),
    read_mixer=partial(read_plain_latent, defaults=LatentDefaults(temperature=True)),
    read_feed_forward=partial(read_shared_experts, defaults=ExpertDefaults(scoring="softmax", bias=False)),
    names={**LATENT_NAMES, **STACKED_NAMES},
    storage=STACKED_EXPERTS,
    inert=DERIVED,
)

_GLM_EXPERTS = partial(read_shared_experts, defaults=ExpertDefaults(first_dense=1, scaling=1.8))

GLM4_MOE_LITE = Family(
    name="glm4_moe_lite",
    native=True,
    model_types=("glm4_moe_lite",),
    architectures=("Glm4MoeLiteForCausalLM",),
    read_mixer=read_plain_latent,
    read_feed_forward=_GLM_EXPERTS,
    read_mtp=following(read_plain_latent, _GLM_EXPERTS),
    norm_eps_default=1e-5,
    names=with_predictors(LATENT_NAMES),
    unread=PREDICTOR_COPIES,
    inert=(*DERIVED, *TRAINED_WITH),
)


def _norm_after_experts(reader: ConfigReader, layer: LayerSpec) -> LayerSpec:
    del reader
    if not isinstance(layer.feed_forward, RoutedExperts):
        return layer
    return replace(layer, norms=(*layer.norms, "ffn_post_norm"))


AXK1 = Family(
    name="axk1",
    native=True,
    model_types=("axk1", "AXK1"),
    architectures=("AXK1ForCausalLM",),
    read_mixer=read_plain_latent,
    # Releases route without a learnt bias.
    read_feed_forward=partial(
        read_shared_experts,
        defaults=ExpertDefaults(first_dense=1, groups=8, topk_groups=4, scaling=2.5, bias=False),
    ),
    finish_layer=_norm_after_experts,
    names={**LATENT_NAMES, **layer_names({"ffn_post_norm.weight": "post_mlp_layernorm.weight"})},
    # Dense layers store the norm too, and do not apply it.
    unread=("model.layers.{l}.post_mlp_layernorm.weight",),
    inert=(*DERIVED, *TRAINED_WITH),
)

LATENT_DECODERS = (MINICPM3, YOUTU, MISTRAL4, GLM4_MOE_LITE, AXK1)
