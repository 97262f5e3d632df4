"""OLMo 2, 3 and OLMoE: norms after each branch only, and on all query and key heads together."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, POST_NORMS, QWEN_MOE_NAMES
from day0.profile.families.family import Family
from day0.profile.profile import GroupedQueryAttention
from day0.profile.read_experts import ExpertLine, read_expert_line
from day0.profile.read_feed_forward import read_dense
from day0.profile.read_gqa_variants import GqaLine, by_period, read_gqa_line
from day0.profile.read_positions import read_rope

_OLMO2 = GqaLine(theta=5e5, qk_norm="all")
_OLMO3 = replace(_OLMO2, kind=by_period(4), window=4096, ropes_by_kind=True)
_NAMES = {**LLAMA_NAMES, **POST_NORMS}
_NORMS = ("mixer_post_norm", "ffn_post_norm")


def _olmo3_attention(reader: ConfigReader, index: int) -> GroupedQueryAttention:
    """Only full attention stretches its frequencies, unless each kind of layer has a section of its own."""
    spec = read_gqa_line(reader, index, line=_OLMO3)
    if spec.window is None:
        return spec
    rope = read_rope(reader, spec.head_dim, theta=_OLMO3.theta, kind="sliding_attention", scaled=False)
    return replace(spec, rope=rope)


def _olmoe_attention(reader: ConfigReader, index: int) -> GroupedQueryAttention:
    if reader.has("clip_qkv"):
        raise InputError("clipped queries, keys and values are not known here", where=reader.where("clip_qkv"))
    return read_gqa_line(reader, index, line=replace(_OLMO2, theta=1e4))


OLMO2 = Family(
    name="olmo2",
    model_types=("olmo2",),
    architectures=("Olmo2ForCausalLM",),
    native=True,
    read_mixer=partial(read_gqa_line, line=_OLMO2),
    read_feed_forward=read_dense,
    norms=_NORMS,
    norm_eps_default=1e-5,
    names=_NAMES,
)

OLMO3 = Family(
    name="olmo3",
    model_types=("olmo3",),
    architectures=("Olmo3ForCausalLM",),
    native=True,
    read_mixer=_olmo3_attention,
    read_feed_forward=read_dense,
    norms=_NORMS,
    norm_eps_default=1e-5,
    names=_NAMES,
)

OLMOE = Family(
    name="olmoe",
    model_types=("olmoe",),
    architectures=("OlmoeForCausalLM",),
    native=True,
    read_mixer=_olmoe_attention,
    read_feed_forward=partial(
        read_expert_line, line=ExpertLine(experts=("num_experts", "num_local_experts"), width="intermediate_size")
    ),
    norm_eps_default=1e-5,
    names={**LLAMA_NAMES, **QWEN_MOE_NAMES},
)

OLMOS = (OLMO2, OLMO3, OLMOE)
