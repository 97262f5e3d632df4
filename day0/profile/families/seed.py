"""Seed-OSS: a Llama with biases on q, k and v."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES
from day0.profile.families.family import Family
from day0.profile.profile import GroupedQueryAttention
from day0.profile.read_feed_forward import read_dense
from day0.profile.read_gqa_variants import GqaLine, read_gqa_line

_LINE = GqaLine(kv_heads=8, head_dim=128, bias=True, o_bias=False)


def _attention(reader: ConfigReader, index: int) -> GroupedQueryAttention:
    return replace(read_gqa_line(reader, index, line=_LINE), o_bias=reader.flag("attention_out_bias", False))


SEED_OSS = Family(
    name="seed_oss",
    model_types=("seed_oss",),
    architectures=("SeedOssForCausalLM",),
    native=True,
    read_mixer=_attention,
    read_feed_forward=partial(read_dense, bias_key="mlp_bias"),
    names=LLAMA_NAMES,
    # Dropout, off at inference.
    inert=("residual_dropout",),
)
