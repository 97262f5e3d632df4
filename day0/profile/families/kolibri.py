"""Kolibri 1: windows with positions, full attention without, experts chosen by logit and bias, norms on both sides."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, QWEN_MOE_NAMES, layer_names
from day0.profile.families.family import Family
from day0.profile.profile import FeedForward, RoutedExperts
from day0.profile.read_experts import ExpertLine, read_expert_line
from day0.profile.read_gqa_variants import GqaLine, by_period, read_gqa_line, rotated_where_sliding

_KIND = by_period(5)
_LINE = GqaLine(
    kv_heads=4,
    head_dim=128,
    bias_key=None,
    qk_norm="head",
    kind=_KIND,
    window=513,
    rotated=rotated_where_sliding(_KIND),
)
_EXPERTS = ExpertLine(
    experts=("num_local_experts", "num_experts"),
    shared="shared_expert_intermediate_size",
    shared_default=512,
    shared_is_width=True,
    scoring="sigmoid",
    correction_bias=True,
)


def _feed_forward(reader: ConfigReader, index: int) -> FeedForward:
    spec = read_expert_line(reader, index, line=_EXPERTS)
    assert isinstance(spec, RoutedExperts)
    return replace(spec, router=replace(spec.router, choose_logits=True))


KOLIBRI = Family(
    name="kolibri1",
    model_types=("kolibri1",),
    architectures=("Kolibri1ForCausalLM",),
    native=True,
    read_mixer=partial(read_gqa_line, line=_LINE),
    read_feed_forward=_feed_forward,
    norms=("mixer_norm", "mixer_post_norm", "ffn_norm", "ffn_post_norm"),
    names={
        **LLAMA_NAMES,
        **QWEN_MOE_NAMES,
        **layer_names(
            {
                "mixer_post_norm.weight": "post_attn_norm.weight",
                "ffn_post_norm.weight": "post_ffn_norm.weight",
                "ffn.router.correction_bias": "moe.router.expert_bias",
            }
        ),
    },
)
