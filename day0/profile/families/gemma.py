"""Gemma 2 and 3: norms on both sides of each branch, windows in most layers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, SANDWICH_NORMS
from day0.profile.families.family import Family
from day0.profile.families.siglip_vision import GEMMA3_FLAT_TOWER_NAMES, GEMMA3_TOWER_NAMES, read_gemma3_tower
from day0.profile.profile import GroupedQueryAttention, ModelEnds
from day0.profile.read_feed_forward import read_dense
from day0.profile.read_gqa_variants import GqaLine, by_period, read_gqa_line
from day0.profile.read_positions import read_rope


def _pattern(reader: ConfigReader) -> int:
    return reader.integer("sliding_window_pattern", 6)


_GEMMA2 = GqaLine(kv_heads=4, head_dim=256, kind=by_period(2), window=4096)
_GEMMA3 = replace(_GEMMA2, qk_norm="head", kind=by_period(_pattern), theta=1e6, ropes_by_kind=True)
_NORMS = ("mixer_norm", "mixer_post_norm", "ffn_norm", "ffn_post_norm")
_NAMES = {**LLAMA_NAMES, **SANDWICH_NORMS}

MARKS = (
    "boi_token_index",
    "eoi_token_index",
    "boi_token_id",
    "eoi_token_id",
)
"""Marks of images in the prompt: the prompt's renderer needs them, the decoder does not."""


def check_causal(reader: ConfigReader) -> None:
    if reader.flag("use_bidirectional_attention", False):
        raise InputError("encoders are not known here", where=reader.where("use_bidirectional_attention"))


def _gemma_attention(reader: ConfigReader, index: int) -> GroupedQueryAttention:
    check_causal(reader)
    return read_gqa_line(reader, index, line=GqaLine(kv_heads=16, head_dim=256))


def _ends(reader: ConfigReader, *, softcap: float | None) -> ModelEnds:
    """Embeddings times the root of the hidden size."""
    cap = reader.optional_number("final_logit_softcapping")
    if cap is None and "final_logit_softcapping" not in reader.values:
        cap = softcap
    return ModelEnds(embedding_scale=reader.integer("hidden_size") ** 0.5, logit_softcap=cap)


def _gemma2_attention(
    reader: ConfigReader, index: int, *, line: GqaLine, softcap: float | None
) -> GroupedQueryAttention:
    """The scale is that of `query_pre_attn_scalar`, whatever the head's width."""
    check_causal(reader)
    spec = read_gqa_line(reader, index, line=line)
    cap = reader.optional_number("attn_logit_softcapping")
    if cap is None and "attn_logit_softcapping" not in reader.values:
        cap = softcap
    return replace(spec, scale=reader.number("query_pre_attn_scalar", 256.0) ** -0.5, softcap=cap)


def _gemma3_attention(reader: ConfigReader, index: int) -> GroupedQueryAttention:
    """Sliding layers have a base of their own (`rope_local_base_freq`), and their frequencies are not stretched."""
    spec = _gemma2_attention(reader, index, line=_GEMMA3, softcap=None)
    reader.ignore("rope_local_base_freq")
    if spec.window is None:
        return spec
    rope = read_rope(
        reader, spec.head_dim, theta=1e4, kind="sliding_attention", theta_key="rope_local_base_freq", scaled=False
    )
    return replace(spec, rope=rope)


_dense = partial(read_dense, activation="hidden_activation", silent="gelu_pytorch_tanh")

GEMMA = Family(
    name="gemma",
    model_types=("gemma",),
    architectures=("GemmaForCausalLM",),
    native=True,
    read_mixer=_gemma_attention,
    read_feed_forward=partial(read_dense, silent="gelu_pytorch_tanh"),
    read_ends=partial(_ends, softcap=None),
    norm_kind="rms_plus_one",
    tie_default=True,
    names=LLAMA_NAMES,
    # Later releases name the activation a second time.
    inert=("hidden_activation",),
)

GEMMA2 = Family(
    name="gemma2",
    model_types=("gemma2",),
    architectures=("Gemma2ForCausalLM",),
    native=True,
    read_mixer=partial(_gemma2_attention, line=_GEMMA2, softcap=50.0),
    read_feed_forward=_dense,
    read_ends=partial(_ends, softcap=30.0),
    norms=_NORMS,
    norm_kind="rms_plus_one",
    tie_default=True,
    names=_NAMES,
    # Older releases name the activation twice; hidden_activation counts. The cache is the engine's affair.
    inert=("hidden_act", "cache_implementation"),
)

GEMMA3_TEXT = replace(
    GEMMA2,
    name="gemma3_text",
    model_types=("gemma3_text",),
    architectures=("Gemma3ForCausalLM",),
    read_mixer=_gemma3_attention,
    read_ends=partial(_ends, softcap=None),
    inert=(*GEMMA2.inert, "sliding_window_pattern", "_sliding_window_pattern"),
)

GEMMA3 = replace(
    GEMMA3_TEXT,
    name="gemma3",
    model_types=("gemma3",),
    architectures=("Gemma3ForConditionalGeneration",),
    text_section="text_config",
    read_vision=read_gemma3_tower,
    names={**{ours: f"language_model.{theirs}" for ours, theirs in _NAMES.items()}, **GEMMA3_TOWER_NAMES},
    variants=("gemma3_flat_tower",),
    inert=(*GEMMA3_TEXT.inert, *MARKS),
)

GEMMA3_FLAT = replace(
    GEMMA3,
    name="gemma3_flat_tower",
    model_types=(),
    architectures=(),
    names={**GEMMA3.names, **GEMMA3_FLAT_TOWER_NAMES},
    variants=(),
)

GEMMAS = (GEMMA, GEMMA2, GEMMA3_TEXT, GEMMA3, GEMMA3_FLAT)
