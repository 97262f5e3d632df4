"""DeepSeek V2, V3 and V3.2, and models of the same architecture: Kimi K2 (alone and inside K2.5), JoyAI Flash."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from day0.profile.config_reader import ConfigReader
from day0.profile.families.family import Family
from day0.profile.families.kimi_k25_vision import (
    KIMI_K25_TOWER_NAMES,
    MOONVIT_TINY_IMAGES,
    read_kimi_k25_tower,
)
from day0.profile.families.latent_names import LATENT_NAMES, PREDICTOR_COPIES, with_predictors
from day0.profile.profile import LatentAttention
from day0.profile.read_latent import LatentDefaults, read_latent
from day0.profile.read_predictors import following
from day0.profile.read_shared_experts import ExpertDefaults, read_shared_experts
from day0.profile.read_sparse import IndexDefaults, read_sparse_everywhere

DERIVED = ("head_dim", "qk_head_dim")
"""Written by transformers 5 beside the sizes it makes them of (the rotated slice; both slices) and never read back."""

TRAINED_WITH = ("aux_loss_alpha", "seq_aux", "ep_size")
"""Balance loss of the experts and ranks in training."""


def read_plain_latent(
    reader: ConfigReader, index: int, *, defaults: LatentDefaults = LatentDefaults()
) -> LatentAttention:
    """The same latent attention in every layer."""
    del index
    return read_latent(reader, defaults)


_V3_EXPERTS = partial(
    read_shared_experts,
    defaults=ExpertDefaults(first_dense=3, groups=8, topk_groups=4, scaling=2.5),
)
_V32_MIXER = partial(read_sparse_everywhere, latent=LatentDefaults(), defaults=IndexDefaults())

DEEPSEEK_V2 = Family(
    name="deepseek_v2",
    native=True,
    model_types=("deepseek_v2",),
    architectures=("DeepseekV2ForCausalLM",),
    read_mixer=read_plain_latent,
    read_feed_forward=partial(
        read_shared_experts,
        defaults=ExpertDefaults(scoring="softmax", method="greedy", renormalize=False, shared=2),
    ),
    names=LATENT_NAMES,
    # No MLP has biases.
    inert=(*DERIVED, *TRAINED_WITH, "mlp_bias"),
)

DEEPSEEK_V3 = Family(
    name="deepseek_v3",
    native=True,
    model_types=("deepseek_v3", "kimi_k2", "joyai_llm_flash", "deepseek_ref"),
    architectures=("DeepseekV3ForCausalLM",),
    read_mixer=read_plain_latent,
    read_feed_forward=_V3_EXPERTS,
    read_mtp=following(read_plain_latent, _V3_EXPERTS),
    names=with_predictors(LATENT_NAMES),
    unread=PREDICTOR_COPIES,
    inert=(*DERIVED, *TRAINED_WITH),
)

DEEPSEEK_V32 = Family(
    name="deepseek_v32",
    native=True,
    model_types=("deepseek_v32", "deepseek_ref"),
    architectures=("DeepseekV32ForCausalLM",),
    read_mixer=_V32_MIXER,
    read_feed_forward=_V3_EXPERTS,
    read_mtp=following(_V32_MIXER, _V3_EXPERTS),
    names=with_predictors(LATENT_NAMES),
    unread=PREDICTOR_COPIES,
    # No MLP has biases.
    inert=(*DERIVED, *TRAINED_WITH, "mlp_bias"),
)


def _in_language_model(name: str) -> str:
    return f"language_model.{name}"


KIMI_K25 = replace(
    DEEPSEEK_V3,
    name="kimi_k25",
    model_types=("kimi_k25",),
    architectures=("KimiK25ForConditionalGeneration",),
    text_section="text_config",
    read_vision=read_kimi_k25_tower,
    tiny={"projection_hidden_size": 64},
    tiny_extras=MOONVIT_TINY_IMAGES,
    names={
        **{ours: _in_language_model(theirs) for ours, theirs in DEEPSEEK_V3.names.items()},
        **KIMI_K25_TOWER_NAMES,
    },
    unread=tuple(_in_language_model(name) for name in PREDICTOR_COPIES),
    # The top level repeats what its text section says, and names the placeholders of the prompt renderer.
    inert=(
        *DEEPSEEK_V3.inert,
        "model_type",
        "architectures",
        "rope_theta",
        "vision_start_token_id",
        "vision_end_token_id",
        "use_unified_vision_chunk",
        "video_placeholder",
    ),
)

DEEPSEEKS = (DEEPSEEK_V2, DEEPSEEK_V3, DEEPSEEK_V32, KIMI_K25)
