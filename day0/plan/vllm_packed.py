"""vLLM's blocks for layers of several planes each (DeepSeek-V4): pages of several sizes packed side by side.

Growing planes (compressed entries and an indexer's keys) make one group of blocks of 256 tokens. Windows and pending
entries make groups of their own with shorter blocks, whose pages are padded to the next larger size of the first
group, and a block of any group takes the same bytes (`group_and_unify_kv_cache_specs` in vLLM's `kv_cache_utils.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from day0.plan.memory import Capacity, PlaneCache, RankCache

GROWING_BLOCK_TOKENS = 256
_WINDOW_BLOCK_TOKENS = 64
_PENDING_BLOCK_TOKENS = {8: 4, 128: 8}
"""Tokens of a block of pending entries, by their window: two entries of 4 tokens each, or one of 128."""
_PAGE_ALIGNMENT = 576
"""Bytes; what FlashMLA's kernels ask of a page."""


Packing = Literal["tuples", "sizes", "group"]
"""How a block is made of the groups' pages: as many of every size as the longest group has layers (before 0.23); of
each size as many as the group with most of it; the largest group's pages and no more (0.27 on)."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Planes that share a block table: how many of each page size, bytes."""

    pages: Mapping[int, int]
    block_tokens: int
    window: int | None = None

    @property
    def tuples(self) -> int:
        return max(self.pages.values())

    @property
    def nbytes(self) -> int:
        return sum(size * count for size, count in self.pages.items())

    def blocks(self, context: int, in_flight: int) -> int:
        """Blocks a sequence is charged: its window and the tokens in flight, and one for where the window starts."""
        if self.window is None:
            return -(-context // self.block_tokens)
        return -(-min(context, self.window - 1 + in_flight) // self.block_tokens) + 1


def packs(cache: RankCache) -> bool:
    """Whether vLLM would pack this rank's pages so: growing planes and windows in one layer, and no state."""
    both = any(layer.full and layer.windowed for layer in cache.layers)
    return both and not any(layer.state_bytes for layer in cache.layers)


def packed_blocks(cache: RankCache, pool: int, context: int, in_flight: int, packing: Packing) -> tuple[Capacity, int]:
    """Blocks that `pool` bytes make, and the bytes of one; `in_flight` tokens are scheduled and not yet settled."""
    growing, *windows = _groups(cache)
    block_bytes = _block_bytes([growing, *windows], packing)
    fixed = sum(group.blocks(context, in_flight) for group in windows)
    return Capacity(pool // block_bytes, GROWING_BLOCK_TOKENS * cache.cp, fixed), block_bytes


def _groups(cache: RankCache) -> list[_Group]:
    """The growing group and those of windows, each cut to about as many layers as the growing one has."""
    growing: Counter[int] = Counter()
    windowed: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for layer, count in Counter(cache.layers).items():
        for plane in layer.planes:
            tokens = _block_tokens(plane)
            page = _aligned(-(-tokens // plane.stride) * plane.entry_bytes)
            if plane.window is None:
                growing[page] += count
            else:
                windowed[tokens, plane.window][page] += count
    padded = {key: _padded(pages, growing) for key, pages in windowed.items()}
    first = _Group(growing, GROWING_BLOCK_TOKENS)
    length = _group_length([first.tuples, *(max(pages.values()) for pages in padded.values())])
    cut = [group for key, pages in padded.items() for group in _cut(pages, *key, length)]
    return [first, *cut]


def _block_tokens(plane: PlaneCache) -> int:
    if plane.window is None:
        return GROWING_BLOCK_TOKENS
    return _PENDING_BLOCK_TOKENS.get(plane.window, 8) if plane.pending else _WINDOW_BLOCK_TOKENS


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _PAGE_ALIGNMENT) * _PAGE_ALIGNMENT


def _padded(pages: Mapping[int, int], sizes: Mapping[int, int]) -> Counter[int]:
    """Pages padded to the next larger of `sizes`; one larger than all stays."""
    padded: Counter[int] = Counter()
    for page, count in pages.items():
        padded[min((size for size in sizes if size >= page), default=page)] += count
    return padded


def _group_length(lengths: Sequence[int]) -> int:
    """Layers per group, at least those of the first, for which rounding all lengths up to it pads least; the larger
    on a draw."""
    return min(range(lengths[0], max(lengths) + 1), key=lambda step: (sum(-size % step for size in lengths), -step))


def _cut(pages: Mapping[int, int], block_tokens: int, window: int, length: int) -> Iterator[_Group]:
    """A group dealt in turn into as many as it takes for none to be longer than `length` of a size."""
    number = -(-max(pages.values()) // length)
    for index in range(number):
        yield _Group({size: -(-(count - index) // number) for size, count in pages.items()}, block_tokens, window)


def _block_bytes(groups: Sequence[_Group], packing: Packing) -> int:
    if packing == "group":
        return max(group.nbytes for group in groups)
    if packing == "sizes":
        sizes = {size for group in groups for size in group.pages}
        return sum(size * max(group.pages.get(size, 0) for group in groups) for size in sizes)
    return sum(groups[0].pages) * max(group.tuples for group in groups)
