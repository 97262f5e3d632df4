"""What DeepSeek-V4's attention needs: a window of shared keys and values, and the past compressed beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from day0.inventory.latent import indexer_choice
from day0.inventory.use import Use, linear, use
from day0.profile.profile import (
    ArchitectureProfile,
    CompressedSparseAttention,
    HeavilyCompressedAttention,
    IndexerSpec,
    RopeSpec,
    SharedKeyValueAttention,
)


def shared_key_value(spec: SharedKeyValueAttention, profile: ArchitectureProfile) -> Iterator[Use]:
    yield from _inputs(spec, profile)
    yield use(
        "shared_kv_attention",
        "mixer.attention",
        heads=spec.num_heads,
        head_dim=spec.head_dim,
        scale=spec.scale,
        window=spec.window,
    )
    yield from _outputs(spec, profile)


def heavily_compressed(spec: HeavilyCompressedAttention, profile: ArchitectureProfile) -> Iterator[Use]:
    attention: SharedKeyValueAttention = spec.attention
    yield from _inputs(attention, profile)
    yield from _compressor(
        "mixer.compressor", attention.rope, attention.norm_eps, attention.head_dim, spec.ratio, profile, overlap=False
    )
    yield use(
        "hca_attention",
        "mixer.attention",
        heads=attention.num_heads,
        head_dim=attention.head_dim,
        scale=attention.scale,
        window=attention.window,
        ratio=spec.ratio,
    )
    yield from _outputs(attention, profile)


def compressed_sparse(spec: CompressedSparseAttention, profile: ArchitectureProfile) -> Iterator[Use]:
    attention: SharedKeyValueAttention = spec.attention
    yield from _inputs(attention, profile)
    yield from _compressor(
        "mixer.compressor", attention.rope, attention.norm_eps, attention.head_dim, spec.ratio, profile, overlap=True
    )
    yield from _indexer(spec.indexer, attention, spec.ratio, profile)
    yield use(
        "csa_attention",
        "mixer.attention",
        heads=attention.num_heads,
        head_dim=attention.head_dim,
        chosen=spec.indexer.top_k,
        scale=attention.scale,
        window=attention.window,
        ratio=spec.ratio,
    )
    yield from _outputs(attention, profile)


def _inputs(spec: SharedKeyValueAttention, profile: ArchitectureProfile) -> Iterator[Use]:
    hidden, heads, dim, eps = profile.hidden_size, spec.num_heads, spec.head_dim, spec.norm_eps
    yield linear("mixer.q_a_proj", hidden, spec.q_lora_rank)
    yield use("rms_norm", "mixer.q_a_norm", width=spec.q_lora_rank, eps=eps)
    yield linear("mixer.q_b_proj", spec.q_lora_rank, heads * dim)
    # Of every head, with a weight of one.
    yield use("rms_norm", "mixer.q_norm", width=dim, eps=eps)
    yield linear("mixer.kv_proj", hidden, dim)
    yield use("rms_norm", "mixer.kv_norm", width=dim, eps=eps)
    rope: RopeSpec = spec.rope
    yield use("rope_table", "mixer.rope", rope_pairs=rope.dim // 2, theta=rope.theta, scaling=rope.scaling)
    yield _turn("mixer.rope.q", spec.rope, heads, dim)
    yield _turn("mixer.rope.kv", spec.rope, 1, dim)
    yield use("paged_cache_write", "mixer.cache.shared_kv", width=dim)


def _turn(place: str, rope: RopeSpec, heads: int, dim: int, *, inverse: bool = False) -> Use:
    pairs = rope.dim // 2
    return use("rope_tail", place, heads=heads, head_dim=dim, rope_pairs=pairs, layout=rope.layout, inverse=inverse)


def _compressor(
    place: str, rope: RopeSpec, eps: float, dim: int, ratio: int, profile: ArchitectureProfile, *, overlap: bool
) -> Iterator[Use]:
    """Tokens to entries of `dim` channels, normalised, turned by the place of their first token, and cached."""
    width = 2 * dim if overlap else dim
    for name in ("kv_proj", "gate_proj"):
        yield linear(f"{place}.{name}", profile.hidden_size, width)
    yield use("gated_pool", place, pooled_width=width, head_dim=dim, stride=ratio, overlap=overlap)
    yield use("rms_norm", f"{place}.norm", width=dim, eps=eps)
    yield _turn(f"{place}.rope", rope, 1, dim)
    yield use("paged_cache_write", f"{place}.cache", width=dim)


def _indexer(
    spec: IndexerSpec, attention: SharedKeyValueAttention, ratio: int, profile: ArchitectureProfile
) -> Iterator[Use]:
    heads, dim = spec.num_heads, spec.head_dim
    yield linear("mixer.indexer.q_b_proj", attention.q_lora_rank, heads * dim)
    if spec.rope is not None and spec.rope_last:
        yield _turn("mixer.indexer.rope.q", spec.rope, heads, dim)
    yield from _compressor("mixer.indexer.compressor", attention.rope, spec.norm_eps, dim, ratio, profile, overlap=True)
    yield linear("mixer.indexer.weights_proj", profile.hidden_size, heads)
    yield indexer_choice(spec, ratio)


def _outputs(spec: SharedKeyValueAttention, profile: ArchitectureProfile) -> Iterator[Use]:
    """Values turn back by the query's place; then each group of heads to its own channels, and all to the model's."""
    groups, mixed = spec.o_groups, spec.o_groups * spec.o_lora_rank
    yield _turn("mixer.rope.output", spec.rope, spec.num_heads, spec.head_dim, inverse=True)
    yield use(
        "head_linear",
        "mixer.o_a_proj",
        heads=groups,
        in_features=spec.num_heads * spec.head_dim // groups,
        out_features=spec.o_lora_rank,
    )
    yield linear("mixer.o_b_proj", mixed, profile.hidden_size)


COMPRESSED_RULES: Mapping[type, Callable[[Any, ArchitectureProfile], Iterator[Use]]] = {
    SharedKeyValueAttention: shared_key_value,
    HeavilyCompressedAttention: heavily_compressed,
    CompressedSparseAttention: compressed_sparse,
}
"""Called with the spec and the profile it is part of."""
