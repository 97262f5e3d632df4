"""Exact selection of the largest scores in Triton: radix select, the result in ascending places, ties to the lowest.

Scores become unsigned numbers of the same order. Four passes count the digits of 8 bits of those that still match, the
highest digit first, and so find the last number that is good enough and how many with just that number have room; then
every block writes its part, knowing how many the blocks before it take. No pass waits for the host.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

PASSES, BINS = 4, 256
FEW, BLOCK_OF_FEW, BLOCK = 1 << 19, 1024, 4096
"""Scores of a program; where there are no more than FEW, smaller blocks are done sooner."""


@triton.jit
def _ordered(scores):
    """uint32 in the order of the float32 scores; both zeros are one number, as comparisons have it."""
    bits = tl.where(scores == 0.0, 0.0, scores).to(tl.uint32, bitcast=True)
    return tl.where(scores < 0.0, ~bits, bits | 0x80000000)


@triton.jit
def _threshold(counts, row, top_k, PASSES_DONE: tl.constexpr):
    """The leading digits of the last number that is good enough, and how many of those that match them are wanted."""
    bins = tl.arange(0, 256)
    prefix, room = tl.full((), 0, tl.uint32), top_k
    for done in tl.static_range(PASSES_DONE):
        found = tl.load(counts + (row * 4 + done) * 256 + bins)
        at_least = tl.cumsum(found, axis=0, reverse=True)
        digit = tl.max(tl.where(at_least >= room, bins, 0), axis=0)
        room -= tl.sum(tl.where(bins > digit, found, 0), axis=0)
        prefix |= digit.to(tl.uint32) << (24 - 8 * done)
    return prefix, room


@triton.jit
def _count_digits(scores, ready, counts, entries, top_k, PASS: tl.constexpr, BLOCK: tl.constexpr):
    """How many visible scores of this block that match the digits so far have each next digit, added to `counts`."""
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    last = tl.load(ready + row)
    if block * BLOCK >= last:
        return
    places = block * BLOCK + tl.arange(0, BLOCK)
    matches = places < last
    numbers = _ordered(tl.load(scores + row * entries + places, mask=matches, other=0.0))
    if PASS > 0:
        prefix, _ = _threshold(counts, row, top_k, PASS)
        matches &= (numbers ^ prefix) >> (32 - 8 * PASS) == 0
    digits = ((numbers >> (24 - 8 * PASS)) % 256).to(tl.int32)
    found = tl.histogram(digits, 256, mask=matches)
    bins = tl.arange(0, 256)
    tl.atomic_add(counts + (row * 4 + PASS) * 256 + bins, found, mask=found > 0)


@triton.jit
def _count_taken(scores, ready, counts, taken, entries, top_k, blocks, BLOCK: tl.constexpr):
    """taken[row, block] = how many scores of the block are above the threshold, and how many on it."""
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    last = tl.load(ready + row)
    places = block * BLOCK + tl.arange(0, BLOCK)
    visible = places < last
    numbers = _ordered(tl.load(scores + row * entries + places, mask=visible, other=0.0))
    threshold, _ = _threshold(counts, row, top_k, 4)
    here = taken + (row * blocks + block) * 2
    tl.store(here, tl.sum((visible & (numbers > threshold)).to(tl.int32), axis=0))
    tl.store(here + 1, tl.sum((visible & (numbers == threshold)).to(tl.int32), axis=0))


@triton.jit
def _write_places(
    scores, ready, counts, taken, out, entries, top_k, blocks, out_row,
    BLOCK: tl.constexpr, BLOCK_BLOCKS: tl.constexpr, BLOCK_OUT: tl.constexpr,
):  # fmt: skip
    """The chosen places of a block, behind those of the blocks before it; the first block writes the -1 at the end."""
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    last = tl.load(ready + row)
    out += row * out_row
    if block == 0:
        ends = tl.arange(0, BLOCK_OUT)
        tl.store(out + ends, tl.full((BLOCK_OUT,), -1, tl.int64), mask=(ends >= last) & (ends < top_k))
    if block * BLOCK >= last:
        return
    places = block * BLOCK + tl.arange(0, BLOCK)
    visible = places < last
    numbers = _ordered(tl.load(scores + row * entries + places, mask=visible, other=0.0))
    threshold, room = _threshold(counts, row, top_k, 4)
    before = tl.arange(0, BLOCK_BLOCKS)
    earlier = taken + (row * blocks + before) * 2
    above_before = tl.sum(tl.load(earlier, mask=before < block, other=0), axis=0)
    level_before = tl.sum(tl.load(earlier + 1, mask=before < block, other=0), axis=0)
    above, level = visible & (numbers > threshold), visible & (numbers == threshold)
    rank = level_before + tl.cumsum(level.to(tl.int32), axis=0)
    chosen = above | (level & (rank <= room))
    place = above_before + tl.minimum(level_before, room) + tl.cumsum(chosen.to(tl.int32), axis=0) - 1
    tl.store(out + place, places.to(tl.int64), mask=chosen)


def choose_largest(scores: torch.Tensor, ready: torch.Tensor, top_k: int, out: torch.Tensor) -> None:
    """Put the places of the `top_k` best of the first `ready` scores of each row into `out`, ascending, then -1.

    scores float32 [rows, entries], contiguous, of which the first `ready` int64 [rows] must be written; out int64
    [rows, top_k] with any stride between rows. Equal scores go to the lowest place: as `choose_entries`.
    """
    rows, entries = scores.shape
    assert out.shape == (rows, top_k) and out.stride(1) == 1 and scores.is_contiguous(), "rows as documented"
    block = BLOCK_OF_FEW if scores.numel() <= FEW else BLOCK
    blocks = triton.cdiv(entries, block)
    counts = torch.zeros(rows, PASSES, BINS, dtype=torch.int32, device=scores.device)
    taken = torch.empty(rows, blocks, 2, dtype=torch.int32, device=scores.device)
    grid = (blocks, rows)
    for number in range(PASSES):
        _count_digits[grid](scores, ready, counts, entries, top_k, PASS=number, BLOCK=block, num_warps=8)
    _count_taken[grid](scores, ready, counts, taken, entries, top_k, blocks, BLOCK=block, num_warps=8)
    _write_places[grid](
        *(scores, ready, counts, taken, out, entries, top_k, blocks, out.stride(0)),
        BLOCK=block,
        BLOCK_BLOCKS=triton.next_power_of_2(blocks),
        BLOCK_OUT=triton.next_power_of_2(top_k),
        num_warps=8,
    )
