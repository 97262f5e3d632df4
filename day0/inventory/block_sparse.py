"""What grouped-query attention over chosen blocks needs: the plain one's needs, an indexer, another attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from day0.inventory.grouped_query import grouped_query
from day0.inventory.use import Use, linear, use
from day0.profile.profile import ArchitectureProfile, BlockIndexer, BlockSparseAttention


def block_sparse(spec: BlockSparseAttention, profile: ArchitectureProfile) -> Iterator[Use]:
    for need in grouped_query(spec.attention, profile):
        if need.place == "mixer.attention":
            yield from _indexer(spec.indexer, profile)
            yield _attention(spec)
        else:
            yield need


def _indexer(spec: BlockIndexer, profile: ArchitectureProfile) -> Iterator[Use]:
    heads, dim = spec.num_heads, spec.head_dim
    yield linear("mixer.indexer.q_proj", profile.hidden_size, heads * dim)
    yield linear("mixer.indexer.k_proj", profile.hidden_size, dim)
    yield use(
        "qk_norm",
        "mixer.indexer.qk_norm",
        heads=heads,
        kv_heads=1,
        head_dim=dim,
        eps=profile.norm_eps,
        form="head",
    )
    pairs, layout = spec.rope.dim // 2, spec.rope.layout
    for kind, count in (("q", heads), ("k", 1)):
        yield use("rope", f"mixer.indexer.rope.{kind}", heads=count, head_dim=dim, rope_pairs=pairs, layout=layout)
    yield use("paged_cache_write", "mixer.cache.index", width=dim)
    yield use(
        "block_indexer_topk",
        "mixer.indexer",
        index_heads=heads,
        head_dim=dim,
        chosen=spec.top_k,
        block=spec.block,
        local_blocks=spec.local_blocks,
    )


def _attention(spec: BlockSparseAttention) -> Use:
    attention = spec.attention
    return use(
        "block_sparse_attention",
        "mixer.attention",
        heads=attention.num_heads,
        kv_heads=attention.num_kv_heads,
        head_dim=attention.head_dim,
        index_heads=spec.indexer.num_heads,
        chosen=spec.indexer.top_k,
        scale=attention.scale,
        block=spec.indexer.block,
    )


BLOCK_SPARSE_RULES: Mapping[type, Callable[[Any, ArchitectureProfile], Iterator[Use]]] = {
    BlockSparseAttention: block_sparse,
}
"""Called with the spec and the profile it is part of."""
