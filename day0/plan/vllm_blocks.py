"""vLLM's one block pool: how large a block is and how many of them a sequence takes, by kinds of layers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil

from day0.plan.memory import Capacity, LayerCache, PlaneCache, RankCache
from day0.plan.vllm_packed import Packing, packed_blocks, packs

BLOCK_TOKENS = 16
STATE_BLOCKS = 2
"""State pages per group that a request may hold with prefix caching on: the running state and the last aligned one."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What decides how many blocks one sequence needs: its length, tokens in flight, alignment of a block's tokens,
    state pages that a request may hold of each group, and how pages of several sizes are packed.
    """

    context: int
    in_flight: int
    align: int = BLOCK_TOKENS
    state_blocks: int = STATE_BLOCKS
    packing: Packing = "group"


def blocks_of(cache: RankCache, pool: int, demand: Demand) -> tuple[Capacity, int]:
    """Blocks that `pool` bytes make, and the bytes of one.

    Layers that all grow with the sequence share one small block. Layers with windows beside what grows are packed
    (`vllm_packed`); where layers compress and keep state, every plane is counted by itself (`_mixed`). Else one page
    size serves every layer: with state, the attention block grows in steps of `align` tokens until its page holds one
    layer's state; layers are grouped by kind into groups as large as the smallest kind, and a block is a page for each
    layer of a group.
    """
    full = [layer for layer in cache.layers if layer.full]
    windowed = [layer for layer in cache.layers if layer.windowed]
    states = [layer for layer in cache.layers if layer.state_bytes]
    if not full and not windowed:
        if not states:
            return Capacity(None, BLOCK_TOKENS), 0
        held = pool // (demand.state_blocks * cache.state_bytes)
        return Capacity(None, BLOCK_TOKENS, slots=held), demand.state_blocks * cache.state_bytes
    if packs(cache):
        return packed_blocks(cache, pool, demand.context, demand.in_flight, demand.packing)
    if any((layer.full and layer.windowed) or _strides(layer) for layer in cache.layers):
        return _mixed(cache, pool, demand)
    if not windowed and not states:
        block_bytes = ceil(BLOCK_TOKENS * cache.exact_token_bytes)
        return Capacity(pool // block_bytes, BLOCK_TOKENS * cache.cp), block_bytes
    return _grouped(cache, full, windowed, states, pool, demand)


def _grouped(
    cache: RankCache,
    full: list[LayerCache],
    windowed: list[LayerCache],
    states: list[LayerCache],
    pool: int,
    demand: Demand,
) -> tuple[Capacity, int]:
    token_bytes = max(ceil(layer.widest_bytes) for layer in (*full, *windowed))
    largest = max((layer.state_bytes for layer in states), default=0)
    # the fewest steps whose page is as large as one layer's state; without state there is nothing to grow for
    block_tokens = -(-largest // (token_bytes * demand.align)) * demand.align if largest else BLOCK_TOKENS
    page = block_tokens * token_bytes
    group = _group_size([len(kind) for kind in (full, windowed, states) if kind])
    fixed = demand.state_blocks * -(-len(states) // group)
    # layers with narrower tokens put more of them into a page of the same size
    for layer, count in Counter(windowed).items():
        tokens = max(1, page // ceil(layer.widest_bytes))
        fixed += -(-count // group) * _window_blocks(layer.windowed, demand, tokens)
    full_tokens = page // max((ceil(layer.widest_bytes) for layer in full), default=token_bytes)
    groups = -(-len(full) // group)
    return Capacity(pool // (page * group), full_tokens * cache.cp, fixed, groups=groups), page * group


def _mixed(cache: RankCache, pool: int, demand: Demand) -> tuple[Capacity, int]:
    """Compressed planes beside states or without windows: growing planes in blocks of 256 tokens, windows of 64.

    The blocks are counted as if each plane had its own: what packing planes of several sizes into one page wastes is
    not known for these.
    """
    block_tokens = 256
    block_bytes = sum(
        count * -(-block_tokens // plane.stride) * plane.entry_bytes
        for layer, count in Counter(cache.layers).items()
        for plane in layer.full
    )
    fixed = demand.state_blocks * cache.state_bytes
    for layer, count in Counter(cache.layers).items():
        for plane in layer.windowed:
            assert plane.window is not None
            fixed += count * min(demand.context, plane.window - 1 + demand.in_flight + 64) * plane.entry_bytes
    capacity = Capacity(pool // block_bytes, block_tokens * cache.cp, -(-fixed // block_bytes))
    return capacity, block_bytes


def _strides(layer: LayerCache) -> bool:
    return any(plane.stride > 1 for plane in layer.planes)


def _group_size(counts: list[int]) -> int:
    """Layers per group: the rarest kind's, or the commonest's where that is less than half as many again."""
    return max(counts) if max(counts) < 1.5 * min(counts) else min(counts)


def _window_blocks(planes: tuple[PlaneCache, ...], demand: Demand, block_tokens: int) -> int:
    """Blocks of a windowed group for one sequence: the window and the tokens in flight, never more than the context."""
    window = max(plane.window or 0 for plane in planes)
    return -(-min(demand.context, window - 1 + demand.in_flight) // block_tokens) + 1
