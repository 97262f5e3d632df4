"""Cohere's Command R line: both branches read one layer norm, logits are scaled, and in Command A windows slide."""

from __future__ import annotations

from functools import partial

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES
from day0.profile.families.family import Family
from day0.profile.profile import GroupedQueryAttention, ModelEnds, ParallelResidual, Residual
from day0.profile.read_feed_forward import read_dense
from day0.profile.read_gqa_variants import GqaLine, by_period, read_gqa_line, rotated_where_sliding


def _period(reader: ConfigReader) -> int:
    return reader.integer("sliding_window_pattern", 4)


_KIND = by_period(_period)
_COHERE = GqaLine(theta=5e5, layout="interleaved")
_COHERE2 = GqaLine(layout="interleaved", kind=_KIND, window=4096, rotated=rotated_where_sliding(_KIND))


def _attention(reader: ConfigReader, index: int) -> GroupedQueryAttention:
    if reader.flag("use_qk_norm", False):
        raise InputError("layer norms on queries and keys are not known here", where=reader.where("use_qk_norm"))
    return read_gqa_line(reader, index, line=_COHERE)


def _residual(reader: ConfigReader) -> Residual:
    del reader
    return ParallelResidual()


def _ends(reader: ConfigReader) -> ModelEnds:
    return ModelEnds(logit_scale=reader.number("logit_scale", 0.0625))


COHERE = Family(
    name="cohere",
    model_types=("cohere",),
    architectures=("CohereForCausalLM",),
    native=True,
    read_mixer=_attention,
    read_feed_forward=read_dense,
    read_residual=_residual,
    read_ends=_ends,
    norms=("mixer_norm",),
    norm_kind="layer",
    norm_eps_key="layer_norm_eps",
    norm_eps_default=1e-5,
    tie_default=True,
    names=LLAMA_NAMES,
)

COHERE2 = Family(
    name="cohere2",
    model_types=("cohere2",),
    architectures=("Cohere2ForCausalLM",),
    native=True,
    read_mixer=partial(read_gqa_line, line=_COHERE2),
    read_feed_forward=read_dense,
    read_residual=_residual,
    read_ends=_ends,
    norms=("mixer_norm",),
    norm_kind="layer",
    norm_eps_key="layer_norm_eps",
    norm_eps_default=1e-5,
    tie_default=True,
    names=LLAMA_NAMES,
    # What `layer_types` says layer by layer comes before the pattern. The others are fixed by the architecture.
    inert=(
        "sliding_window_pattern",
        "_sliding_window_pattern",
        "cache_implementation",
        "order_of_interleaved_layers",
        "position_embedding_type",
        "rotary_pct",
        "use_embedding_sharing",
        "use_gated_activation",
        "use_parallel_block",
        "use_parallel_embedding",
        "use_qk_norm",
    ),
)

COHERES = (COHERE, COHERE2)
