"""Latent attention as configs spell it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import LatentAttention, OutputGate, QueryTemperature, RopeLayout, RopeSpec
from day0.profile.read_positions import read_rope

LATENT_NORM_EPS = 1e-6
"""Epsilon of the norms on MLA's low-rank latents: the reference code of DeepSeek and Kimi passes no config value."""


@dataclass(frozen=True, slots=True)
class LatentDefaults:
    """What a family's latent attention is beyond its config's sizes.

    `interleaved` is the rotary layout where `rope_interleave` does not say. `latent_eps` None means that the norms of
    the latents take the model's epsilon. `kind` picks the rotary parameters of one kind of layer, `theta_key` and
    `theta` its base. `bias` None means that the family has none and no key for it. `value_dim_of_hidden` gives a
    missing `v_head_dim` as hidden size over heads (MiniCPM3).
    """

    interleaved: bool = True
    nope: bool = False
    latent_eps: float | None = LATENT_NORM_EPS
    model_eps: float = 1e-6
    theta: float = 10000.0
    theta_key: str = "rope_theta"
    kind: str | None = None
    bias: bool | None = False
    output_gate: OutputGate | None = None
    sinks: bool = False
    rope_key_norm: bool = False
    scaled_latents: bool = False
    raw_query_latent: bool = False
    needs_query_latent: bool = False
    value_dim_of_hidden: bool = False
    temperature: bool = False


def read_latent(reader: ConfigReader, defaults: LatentDefaults, window: int | None = None) -> LatentAttention:
    """Multi-head latent attention, with the softmax scale that YaRN's `mscale_all_dim` corrects (DeepSeek-V2)."""
    heads = _read_heads(reader)
    nope_dim = reader.integer("qk_nope_head_dim")
    rope_dim = reader.integer("qk_rope_head_dim", minimum=0)
    rope = None
    if rope_dim and not defaults.nope:
        rope = read_slice_rope(reader, rope_dim, _layout(reader, defaults), defaults)
    eps = defaults.latent_eps
    return LatentAttention(
        num_heads=heads,
        q_lora_rank=_read_query_rank(reader, defaults),
        kv_lora_rank=reader.integer("kv_lora_rank"),
        qk_nope_head_dim=nope_dim,
        qk_rope_head_dim=rope_dim,
        v_head_dim=_read_value_dim(reader, heads, defaults),
        rope=rope,
        scale=(nope_dim + rope_dim) ** -0.5 * yarn_scale(rope),
        latent_norm_eps=reader.number("rms_norm_eps", defaults.model_eps) if eps is None else eps,
        output_gate=defaults.output_gate,
        bias=reader.flag("attention_bias", defaults.bias) if defaults.bias is not None else False,
        window=window,
        sinks=defaults.sinks,
        rope_key_norm=defaults.rope_key_norm,
        scaled_latents=defaults.scaled_latents,
        raw_query_latent=defaults.raw_query_latent,
        temperature=_read_temperature(reader) if defaults.temperature else None,
    )


def _read_heads(reader: ConfigReader) -> int:
    heads = reader.integer("num_attention_heads")
    kv_heads = reader.integer("num_key_value_heads", heads)
    if kv_heads != heads:
        raise InputError(
            f"latent attention has as many key/value heads as heads ({heads}), got {kv_heads}",
            where=reader.where("num_key_value_heads"),
        )
    return heads


def _read_query_rank(reader: ConfigReader, defaults: LatentDefaults) -> int | None:
    rank = reader.optional_integer("q_lora_rank")
    if rank is None and defaults.needs_query_latent:
        raise InputError("is missing: the indexer reads the query latent", where=reader.where("q_lora_rank"))
    return rank


def _read_value_dim(reader: ConfigReader, heads: int, defaults: LatentDefaults) -> int:
    if defaults.value_dim_of_hidden and not reader.has("v_head_dim"):
        return reader.integer("hidden_size") // heads
    return reader.integer("v_head_dim")


def _layout(reader: ConfigReader, defaults: LatentDefaults) -> RopeLayout:
    return "interleaved" if reader.flag("rope_interleave", defaults.interleaved) else "neox"


def read_slice_rope(reader: ConfigReader, dim: int, layout: RopeLayout, defaults: LatentDefaults) -> RopeSpec:
    """The rotary spec of a slice of `dim` channels; `partial_rotary_factor` only repeats its share of the head."""
    spec = read_rope(reader, dim, layout, defaults.theta, kind=defaults.kind, theta_key=defaults.theta_key)
    section = reader.section("rope_parameters")
    if section is not None:
        section.ignore("max_position_embeddings")  # repeated from outside by some writers; no frequency rule reads it
    return replace(spec, dim=dim)


def yarn_scale(rope: RopeSpec | None) -> float:
    """What YaRN multiplies the softmax scale by: (0.1 mscale_all_dim ln(factor) + 1)^2 (DeepSeek-V2's reference)."""
    if rope is None or rope.scaling != "yarn":
        return 1.0
    numbers = dict(rope.parameters)
    factor, mscale = numbers["factor"], numbers.get("mscale_all_dim", 0.0)
    return (0.1 * mscale * log(factor) + 1.0) ** 2 if mscale and factor > 1 else 1.0


def _read_temperature(reader: ConfigReader) -> QueryTemperature | None:
    """Queries that grow with the position, where the rotary section says by how much (Mistral 4)."""
    section = reader.section("rope_parameters")
    if section is None or not section.has("llama_4_scaling_beta"):
        return None
    return QueryTemperature(section.number("original_max_position_embeddings"), section.number("llama_4_scaling_beta"))
