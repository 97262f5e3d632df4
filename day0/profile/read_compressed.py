"""DeepSeek-V4's attention as configs spell it: a window, and the past compressed lightly or heavily beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import (
    CompressedSparseAttention,
    HeavilyCompressedAttention,
    IndexerSpec,
    Mixer,
    RopeSpec,
    SharedKeyValueAttention,
)
from day0.profile.read_positions import read_rope

Compression = Literal["none", "sparse", "heavy"]

_KINDS: Mapping[str, Compression] = {
    "sliding_attention": "none",
    "compressed_sparse_attention": "sparse",
    "heavily_compressed_attention": "heavy",
}
_WORDS: Mapping[Compression, str] = {kind: word for word, kind in _KINDS.items()}
_SPARSE_RATIO, _HEAVY_RATIO = 4, 128
"""Tokens per entry where the config does not say; the first one is also how `compress_ratios` marks sparse layers."""


def read_compressed_attention(reader: ConfigReader, index: int) -> Mixer:
    """The attention of layer `index`; layers that predict further tokens come after the decoder's own."""
    kind, ratio = _compression(reader, index)
    attention = _read_attention(reader, compressed=kind != "none")
    indexer = IndexerSpec(
        num_heads=reader.integer("index_n_heads"),
        head_dim=reader.integer("index_head_dim"),
        top_k=reader.integer("index_topk"),
        rope=attention.rope,
        norm_eps=attention.norm_eps,
        rope_last=True,
    )
    match kind:
        case "none":
            return attention
        case "sparse":
            return CompressedSparseAttention(attention, ratio, indexer)
        case "heavy":
            return HeavilyCompressedAttention(attention, ratio)


def _compression(reader: ConfigReader, index: int) -> tuple[Compression, int]:
    """How a layer compresses its past: by `layer_types`, by `compress_ratios` (0: not at all), or by turns."""
    layers = reader.integer("num_hidden_layers")
    if reader.has("compress_ratios"):
        reader.ignore("layer_types", "compress_rates")
        return _by_ratio(reader, index, layers)
    if reader.has("layer_types"):
        kinds = reader.words("layer_types")
        if len(kinds) != layers:
            raise InputError(f"{len(kinds)} entries for {layers} layers", where=reader.where("layer_types"))
        word = kinds[index] if index < layers else "sliding_attention"
        if word not in _KINDS:
            raise InputError(
                f"layer kind {word!r} is not known here",
                where=reader.where("layer_types"),
                hint=f"known: {', '.join(_KINDS)}",
            )
        kind = _KINDS[word]
    else:
        reader.words("layer_types", ())  # recorded as defaulted
        kind = "none" if index >= layers else "sparse" if index >= 2 and index % 2 else "heavy"
    return kind, _rate(reader, kind)


def _by_ratio(reader: ConfigReader, index: int, layers: int) -> tuple[Compression, int]:
    """One number a layer; layers that predict further tokens may be listed after the decoder's."""
    ratios = reader.integers("compress_ratios")
    if len(ratios) < layers:
        raise InputError(f"{len(ratios)} entries for {layers} layers", where=reader.where("compress_ratios"))
    ratio = ratios[index] if index < len(ratios) else 0
    if ratio < 0:
        raise InputError(f"must be 0 or more, got {ratio}", where=reader.where("compress_ratios"))
    return ("none" if ratio == 0 else "sparse" if ratio == _SPARSE_RATIO else "heavy"), ratio


def _rate(reader: ConfigReader, kind: Compression) -> int:
    default = _SPARSE_RATIO if kind == "sparse" else _HEAVY_RATIO
    rates = reader.section("compress_rates")
    if rates is None:
        old = {"sparse": "compress_rate_csa", "heavy": "compress_rate_hca"}
        reader.ignore(*(key for key in old.values() if key in reader.values))
        return reader.integer(old[kind], default) if kind in old and reader.has(old[kind]) else default
    rates.ignore(*_WORDS.values())
    return rates.integer(_WORDS[kind], default) if kind != "none" else default


def _read_attention(reader: ConfigReader, *, compressed: bool) -> SharedKeyValueAttention:
    heads, width = reader.integer("num_attention_heads"), reader.integer("head_dim")
    groups = reader.integer("o_groups")
    if reader.integer("num_key_value_heads", 1) != 1:
        raise InputError("all heads share one key/value vector", where=reader.where("num_key_value_heads"))
    if heads % groups:
        raise InputError(f"{heads} heads do not divide into {groups} groups", where=reader.where("o_groups"))
    return SharedKeyValueAttention(
        num_heads=heads,
        head_dim=width,
        q_lora_rank=reader.integer("q_lora_rank"),
        o_groups=groups,
        o_lora_rank=reader.integer("o_lora_rank"),
        rope=_read_rope(reader, width, compressed=compressed),
        scale=width**-0.5,
        window=reader.integer("sliding_window"),
        norm_eps=reader.number("rms_norm_eps", 1e-6),
    )


def _read_rope(reader: ConfigReader, width: int, *, compressed: bool) -> RopeSpec:
    """Windowed layers turn plainly by `rope_theta`; compressed ones by a base of their own, stretched by YaRN."""
    if reader.has("qk_rope_head_dim"):
        dim = reader.integer("qk_rope_head_dim")
        reader.ignore("partial_rotary_factor")
    else:
        dim = int(width * reader.number("partial_rotary_factor", 64 / 512))
    if dim < 2 or dim % 2 or dim > width:
        raise InputError(f"cannot rotate {dim} of {width} channels", where=reader.where("qk_rope_head_dim"))
    reader.ignore("rope_theta", "compress_rope_theta")
    plain = read_rope(
        reader,
        width,
        "interleaved",
        160000.0 if compressed else 10000.0,
        kind="compress" if compressed else "main",
        theta_key="compress_rope_theta" if compressed else "rope_theta",
        scaled=compressed,
    )
    if plain.scaling == "yarn" and "attention_factor" not in dict(plain.parameters):
        # The reference leaves cosine and sine as they are where other models' YaRN enlarges them.
        return replace(plain, dim=dim, parameters=tuple(sorted((*plain.parameters, ("attention_factor", 1.0)))))
    return replace(plain, dim=dim)
