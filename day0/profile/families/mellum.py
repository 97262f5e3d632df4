"""Mellum: windows by layer, each kind with rotary parameters of its own, experts by softmax."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, QWEN_MOE_NAMES
from day0.profile.families.family import Family
from day0.profile.profile import GroupedQueryAttention
from day0.profile.read_experts import ExpertLine, read_expert_line, routed_by_words, routed_everywhere
from day0.profile.read_gqa_variants import GqaLine, by_period, read_gqa_line
from day0.profile.read_positions import read_rope

_LINE = GqaLine(kv_heads=4, head_dim=128, theta=5e5, qk_norm="head", kind=by_period(0), window=1024, ropes_by_kind=True)


def _attention(reader: ConfigReader, index: int) -> GroupedQueryAttention:
    spec = read_gqa_line(reader, index, line=_LINE)
    if spec.window is None:
        return spec
    return replace(spec, rope=read_rope(reader, spec.head_dim, theta=1e4, kind="sliding_attention"))


MELLUM = Family(
    name="mellum",
    model_types=("mellum",),
    architectures=("MellumForCausalLM",),
    native=True,
    read_mixer=_attention,
    read_feed_forward=partial(
        read_expert_line,
        line=ExpertLine(
            experts=("num_experts", "num_local_experts"),
            routed=routed_by_words(routed_everywhere),
            renormalize_default=True,
        ),
    ),
    names={**LLAMA_NAMES, **QWEN_MOE_NAMES},
)
