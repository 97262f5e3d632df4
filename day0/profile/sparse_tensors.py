"""The tensors of sparse and compressed attention, by paths relative to the layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from day0.profile.draft import Draft
from day0.profile.grouped_query_tensors import grouped_query_drafts
from day0.profile.latent_tensors import latent_drafts
from day0.profile.mixers_sparse import (
    BlockSparseAttention,
    CompressedSparseAttention,
    HeavilyCompressedAttention,
    IndexerSpec,
    SharedKeyValueAttention,
    SparseLatentAttention,
)


def sparse_latent_drafts(spec: SparseLatentAttention, hidden: int) -> Iterator[Draft]:
    yield from latent_drafts(spec.attention, hidden)
    if spec.indexer is None:
        return
    # An indexer reads the query latent: the reader refuses models without one.
    assert spec.attention.q_lora_rank is not None
    yield from indexer_drafts(spec.indexer, spec.attention.q_lora_rank, hidden)


def indexer_drafts(spec: IndexerSpec, q_lora_rank: int, hidden: int) -> Iterator[Draft]:
    """Queries, keys and weights of the lightning indexer, and how a pool's keys are weighed. Ranks hold all of it."""
    yield from _index_queries(spec, q_lora_rank, hidden)
    yield Draft("mixer.indexer.k_proj.weight", (spec.head_dim, hidden), "indexer")
    for leaf in ("weight", "bias"):
        yield Draft(f"mixer.indexer.k_norm.{leaf}", (spec.head_dim,), "indexer", dtype="F32", keep_float32=True)
    if spec.pool > 1:
        yield Draft("mixer.indexer.pool_bias", (spec.pool, spec.head_dim), "indexer")
        yield Draft("mixer.indexer.pool_gate", (spec.head_dim, hidden), "indexer")


def _index_queries(spec: IndexerSpec, q_lora_rank: int, hidden: int) -> Iterator[Draft]:
    yield Draft("mixer.indexer.q_b_proj.weight", (spec.num_heads * spec.head_dim, q_lora_rank), "indexer")
    yield Draft("mixer.indexer.weights_proj.weight", (spec.num_heads, hidden), "indexer")


def shared_key_value_drafts(spec: SharedKeyValueAttention, hidden: int) -> Iterator[Draft]:
    heads, group = spec.num_heads, "attention"
    width, mixed = heads * spec.head_dim, spec.o_groups * spec.o_lora_rank
    yield Draft("mixer.q_a_proj.weight", (spec.q_lora_rank, hidden), group)
    yield Draft("mixer.q_a_norm.weight", (spec.q_lora_rank,), group)
    yield Draft("mixer.q_b_proj.weight", (width, spec.q_lora_rank), group, 0, heads)
    yield Draft("mixer.kv_proj.weight", (spec.head_dim, hidden), group)
    yield Draft("mixer.kv_norm.weight", (spec.head_dim,), group)
    yield Draft("mixer.sinks", (heads,), group, 0, heads, dtype="F32", keep_float32=True)
    yield Draft("mixer.o_a_proj.weight", (mixed, width // spec.o_groups), group, 0, spec.o_groups)
    yield Draft("mixer.o_b_proj.weight", (hidden, mixed), group, 1, spec.o_groups)


def heavily_compressed_drafts(spec: HeavilyCompressedAttention, hidden: int) -> Iterator[Draft]:
    yield from shared_key_value_drafts(spec.attention, hidden)
    yield from _compressor("mixer.compressor", spec.attention.head_dim, spec.ratio, 1, hidden, "attention")


def compressed_sparse_drafts(spec: CompressedSparseAttention, hidden: int) -> Iterator[Draft]:
    yield from shared_key_value_drafts(spec.attention, hidden)
    yield from _compressor("mixer.compressor", spec.attention.head_dim, spec.ratio, 2, hidden, "attention")
    yield from _index_queries(spec.indexer, spec.attention.q_lora_rank, hidden)
    yield from _compressor("mixer.indexer.compressor", spec.indexer.head_dim, spec.ratio, 2, hidden, "indexer")


def _compressor(path: str, dim: int, ratio: int, series: int, hidden: int, group: str) -> Iterator[Draft]:
    """What makes entries of `dim` channels out of tokens; `series` is 2 where neighbouring entries overlap."""
    for name in ("kv_proj", "gate_proj"):
        yield Draft(f"{path}.{name}.weight", (series * dim, hidden), group)
    yield Draft(f"{path}.position_bias", (ratio, series * dim), group, dtype="F32", keep_float32=True)
    yield Draft(f"{path}.norm.weight", (dim,), group)


def block_sparse_drafts(spec: BlockSparseAttention, hidden: int) -> Iterator[Draft]:
    """The index queries are cut as the heads they choose for are; every rank scores with all keys."""
    yield from grouped_query_drafts(spec.attention, hidden)
    heads, dim = spec.indexer.num_heads, spec.indexer.head_dim
    yield Draft("mixer.indexer.q_proj.weight", (heads * dim, hidden), "indexer", 0, heads)
    yield Draft("mixer.indexer.k_proj.weight", (dim, hidden), "indexer")
    for name in ("q_norm", "k_norm"):
        yield Draft(f"mixer.indexer.{name}.weight", (dim,), "indexer")


SPARSE_DRAFTS: Mapping[type, Callable[[Any, int], Iterator[Draft]]] = {
    SparseLatentAttention: sparse_latent_drafts,
    SharedKeyValueAttention: shared_key_value_drafts,
    HeavilyCompressedAttention: heavily_compressed_drafts,
    CompressedSparseAttention: compressed_sparse_drafts,
    BlockSparseAttention: block_sparse_drafts,
}
"""Called with the spec and the model's hidden size."""
