"""Mistral's dense decoders: Mistral, Ministral and Ministral 3, alone or inside Mistral 3 with images."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, inside
from day0.profile.families.family import Family
from day0.profile.families.pixtral_vision import PIXTRAL_TOWER_NAMES, read_pixtral_tower
from day0.profile.profile import GroupedQueryAttention, QueryTemperature
from day0.profile.read_feed_forward import read_dense
from day0.profile.read_gqa_variants import GqaLine, read_gqa_line, window_everywhere, window_where_set

_MISTRAL = GqaLine(kv_heads=8, bias_key=None, kind=window_everywhere, window=4096)
_MINISTRAL3 = replace(_MISTRAL, head_dim=128, theta=1e6, kind=window_where_set, window=None)


def _ministral3_attention(reader: ConfigReader, index: int) -> GroupedQueryAttention:
    """Ministral 3: queries grow with the position by `llama_4_scaling_beta`, where that is not 0."""
    spec = read_gqa_line(reader, index, line=_MINISTRAL3)
    section = reader.section("rope_parameters")
    if section is not None:
        section.ignore("max_position_embeddings")  # the model's own is what counts
    beta = section.number("llama_4_scaling_beta", 0.0) if section is not None else 0.0
    if section is None or not beta:
        return spec
    floor = section.number("original_max_position_embeddings")
    return replace(spec, temperature=QueryTemperature(floor, beta))


def _mistral3_attention(reader: ConfigReader, index: int) -> GroupedQueryAttention:
    """The decoder inside Mistral 3 is one of the others, by the section's own model_type."""
    kind = reader.choice("model_type", {"mistral": "mistral", "ministral3": "ministral3"}, "mistral")
    return _ministral3_attention(reader, index) if kind == "ministral3" else read_gqa_line(reader, index, line=_MISTRAL)


MISTRAL = Family(
    name="mistral",
    model_types=("mistral", "ministral"),
    architectures=("MistralForCausalLM", "MinistralForCausalLM"),
    native=True,
    read_mixer=partial(read_gqa_line, line=_MISTRAL),
    read_feed_forward=read_dense,
    names=LLAMA_NAMES,
)

MINISTRAL3 = Family(
    name="ministral3",
    model_types=("ministral3",),
    architectures=("Ministral3ForCausalLM",),
    native=True,
    read_mixer=_ministral3_attention,
    read_feed_forward=read_dense,
    names=LLAMA_NAMES,
    norm_eps_default=1e-5,
)

MISTRAL3 = Family(
    name="mistral3",
    model_types=("mistral3",),
    architectures=("Mistral3ForConditionalGeneration",),
    native=True,
    text_section="text_config",
    read_mixer=_mistral3_attention,
    read_feed_forward=read_dense,
    read_vision=read_pixtral_tower,
    names={
        **inside(LLAMA_NAMES, "language_model.model."),
        "lm_head.weight": "language_model.lm_head.weight",
        **PIXTRAL_TOWER_NAMES,
    },
)

MISTRALS = (MISTRAL, MINISTRAL3, MISTRAL3)
