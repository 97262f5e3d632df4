"""Attention that reads a chosen or compressed part of the past: by tokens, blocks or compressed entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from day0.profile.cache_parts import CachePlane, StateShape
from day0.profile.grouped_query import GroupedQueryAttention
from day0.profile.latent_attention import LatentAttention
from day0.profile.positions import RopeSpec


@dataclass(frozen=True, slots=True)
class IndexerSpec:
    """The lightning indexer (DeepSeek-V3.2): which `top_k` earlier entries a token attends to.

    Entry s scores sum_h w_h relu(q_h . k_s) for token t, with `num_heads` small queries from the query latent, one
    key per entry and weights w from the hidden state. `rope` turns the first channels, or the last where `rope_last`.
    `pool` tokens share one key, a learnt weighted mean of theirs (GLM-5-Next); a pool counts `pool` times in `top_k`,
    and with `pool_tail` the tokens of the unfinished one are always read. The key's norm is a layer norm with bias.
    """

    num_heads: int
    head_dim: int
    top_k: int
    rope: RopeSpec | None
    norm_eps: float = 1e-6
    rope_last: bool = False
    pool: int = 1
    pool_tail: bool = False

    def cache_plane(self) -> CachePlane:
        """The keys; of an unfinished pool each token's key and weights wait in the tail."""
        tail = _tail("index", self.pool, 2 * self.head_dim) if self.pool > 1 else None
        return CachePlane("index", (self.head_dim,), stride=self.pool, index=True, tail=tail)


@dataclass(frozen=True, slots=True)
class SparseLatentAttention:
    """DeepSeek sparse attention (DSA): latent attention over the tokens that an indexer chose.

    `indexer` None reuses what the nearest earlier layer with an indexer chose (GLM-5, arXiv 2603.12201).
    """

    kind: ClassVar[str] = "dsa"
    attention: LatentAttention
    top_k: int
    indexer: IndexerSpec | None

    @property
    def num_heads(self) -> int:
        return self.attention.num_heads

    def cache_planes(self) -> tuple[CachePlane, ...]:
        planes = self.attention.cache_planes()
        return planes if self.indexer is None else (*planes, self.indexer.cache_plane())

    def state_shapes(self) -> tuple[StateShape, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class SharedKeyValueAttention:
    """DeepSeek-V4's attention over a window: one vector per token is key and value of every head.

    `rope` turns the last channels of queries and entries, and the output back by its own position, so that a value's
    part depends on distance alone. Queries pass a norm without weight. A learnt logit per head joins the softmax's
    denominator. The output is projected in `o_groups` groups of heads to `o_lora_rank` channels each, then to the
    model's width.
    """

    kind: ClassVar[str] = "shared_kv"
    num_heads: int
    head_dim: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    rope: RopeSpec
    scale: float
    window: int
    norm_eps: float

    def cache_planes(self) -> tuple[CachePlane, ...]:
        return (CachePlane("shared_kv", (self.head_dim,), window=self.window),)

    def state_shapes(self) -> tuple[StateShape, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class HeavilyCompressedAttention:
    """HCA (DeepSeek-V4): the window, and every `ratio` earlier tokens as one entry, all of which are read.

    An entry is a per-channel softmax-weighted mean of its tokens' projections, with a learnt bias by place, a norm
    and a rotation. The projections and scores of an unfinished entry's tokens wait in the plane's tail.
    """

    kind: ClassVar[str] = "hca"
    attention: SharedKeyValueAttention
    ratio: int

    @property
    def num_heads(self) -> int:
        return self.attention.num_heads

    def cache_planes(self) -> tuple[CachePlane, ...]:
        dim = self.attention.head_dim
        return *self.attention.cache_planes(), _compressed("compressed_kv", dim, self.ratio, self.ratio, 2 * dim)

    def state_shapes(self) -> tuple[StateShape, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class CompressedSparseAttention:
    """CSA (DeepSeek-V4): the window, and those of the compressed entries that an indexer chose.

    Entries overlap: each is made of 2 x `ratio` tokens by two projections, one for the tokens' own entry and one for
    the next. The indexer's keys are compressed alike, at its own width. Of the last 2 x `ratio` - 1 tokens both
    projections and their scores wait in the planes' tails.
    """

    kind: ClassVar[str] = "csa"
    attention: SharedKeyValueAttention
    ratio: int
    indexer: IndexerSpec

    @property
    def num_heads(self) -> int:
        return self.attention.num_heads

    def cache_planes(self) -> tuple[CachePlane, ...]:
        made_of, dim, index_dim = 2 * self.ratio, self.attention.head_dim, self.indexer.head_dim
        entries = _compressed("compressed_kv", dim, self.ratio, made_of, 4 * dim)
        keys = _compressed("index", index_dim, self.ratio, made_of, 4 * index_dim, index=True)
        return *self.attention.cache_planes(), entries, keys

    def state_shapes(self) -> tuple[StateShape, ...]:
        return ()


def _compressed(name: str, dim: int, ratio: int, made_of: int, channels: int, index: bool = False) -> CachePlane:
    """A plane with one entry per `ratio` tokens, each made of the last `made_of` tokens' `channels`."""
    return CachePlane(name, (dim,), stride=ratio, index=index, tail=_tail(name, made_of, channels))


def _tail(name: str, made_of: int, channels: int) -> StateShape:
    """The tokens before the one that completes an entry."""
    return StateShape(f"{name}_tail", (made_of - 1, channels), "model", head_axis=None)


@dataclass(frozen=True, slots=True)
class BlockIndexer:
    """Which blocks of `block` tokens a group of query heads reads (MiniMax M3).

    `num_heads` small queries score one key per token by q . k, each for its own group of query heads; queries and
    keys pass RMS norms of the model's kind, then `rope` turns their first channels. A block counts by its best token
    up to the querying one. `top_k` blocks are read: the `local_blocks` last ones, the token's own among them, and
    the best of the others.
    """

    num_heads: int
    head_dim: int
    block: int
    top_k: int
    local_blocks: int
    rope: RopeSpec

    @property
    def reach(self) -> int:
        """The most tokens a query reads; contexts up to it are read whole."""
        return self.block * self.top_k

    def cache_plane(self) -> CachePlane:
        return CachePlane("index", (self.head_dim,), index=True)


@dataclass(frozen=True, slots=True)
class BlockSparseAttention:
    """Grouped-query attention over the blocks that an indexer chose for each group of heads (MiniMax M3)."""

    kind: ClassVar[str] = "block_sparse"
    attention: GroupedQueryAttention
    indexer: BlockIndexer

    @property
    def num_heads(self) -> int:
        return self.attention.num_heads

    def cache_planes(self) -> tuple[CachePlane, ...]:
        return *self.attention.cache_planes(), self.indexer.cache_plane()

    def state_shapes(self) -> tuple[StateShape, ...]:
        return ()


SparseMixer = (
    SparseLatentAttention
    | SharedKeyValueAttention
    | HeavilyCompressedAttention
    | CompressedSparseAttention
    | BlockSparseAttention
)
