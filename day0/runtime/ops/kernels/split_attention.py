"""What split attention kernels share: into how many parts the past is cut, and how the parts are joined.

A part leaves its own softmax average and the logarithm of its sum; the whole is their mean weighed by the sums (the
split of Flash-Decoding, over arXiv 2205.14135). Parts fill a chip where there are few sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@dataclass(frozen=True, slots=True)
class Tiling:
    """Query rows of a program and keys of a step of its loop, and how it is compiled."""

    rows: int
    keys: int
    warps: int
    stages: int


COLUMNS = 128
"""Columns of a program that joins parts: 64 parts of them are held in registers."""


def num_splits(programs: int, keys: int, block: int, wanted: int) -> int:
    """Parts of the keys, a power of two, so that `programs` times as many come near `wanted`, none without a block."""
    blocks: int = triton.cdiv(max(keys, 1), block)
    wanted = min(triton.cdiv(wanted, programs), blocks)
    return 1 << max(0, wanted.bit_length() - 1)


@triton.jit
def soften(scores, best, total):
    """One step of a softmax that goes along the keys: weights of the new scores [rows, keys], base 2, against the best
    so far, by how much what was summed before shrinks, and the new best and total [rows].
    """
    higher = tl.maximum(best, tl.max(scores, axis=1))
    level = tl.where(higher == float("-inf"), 0.0, higher)  # until a key is seen
    weights = tl.exp2(scores - level[:, None])
    kept = tl.exp2(best - level)
    return weights, kept, higher, total * kept + tl.sum(weights, axis=1)


@triton.jit
def start_softmax(sinks, heads, is_row, split, SINKS: tl.constexpr, ROWS: tl.constexpr):
    """Best and total before any key; a sink is one more logit of the first part, without a value."""
    best = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    if SINKS:
        sink = tl.load(sinks + heads, mask=is_row, other=0.0).to(tl.float32) * LOG2E
        best = tl.where(split == 0, sink, best)
        total = tl.where(split == 0, 1.0, total)
    return best, total


@triton.jit
def part_of(first, last, split, splits, BLOCK: tl.constexpr):
    """Where a part of the keys first .. last - 1 begins and ends: whole blocks, spread evenly."""
    blocks = tl.cdiv(last - first, BLOCK)
    low = first + (blocks * split // splits) * BLOCK
    return low, tl.minimum(first + (blocks * (split + 1) // splits) * BLOCK, last)


@triton.jit
def leave_part(
    parts, sums, mixed, best, total, row, split, rows, is_row, columns, WIDTH: tl.constexpr, SPLIT: tl.constexpr
):
    """Write the softmax average of a part for its rows [BLOCK] of `rows`, and log2 of its sum where there are parts."""
    if SPLIT:
        row += split.to(tl.int64) * rows
        tl.store(sums + row, best + tl.log2(total), mask=is_row)
    found = mixed / tl.where(total > 0.0, total, 1.0)[:, None]
    cells = parts + row[:, None] * WIDTH + columns[None, :]
    tl.store(cells, found.to(parts.dtype.element_ty), mask=is_row[:, None] & (columns < WIDTH)[None, :])


@triton.jit
def _join(parts, sums, out, rows, WIDTH: tl.constexpr, SPLITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """out[row] = the mean of parts [splits, rows, width] weighed by 2^sums [splits, rows]; -inf has no weight."""
    row = tl.program_id(0).to(tl.int64)
    splits, columns = tl.arange(0, SPLITS), tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    logs = tl.load(sums + splits * rows + row)
    weights = tl.exp2(logs - tl.max(logs, axis=0))
    cells = (splits[:, None] * rows + row) * WIDTH + columns[None, :]
    values = tl.load(parts + cells, mask=columns[None, :] < WIDTH, other=0.0)
    mixed = tl.sum(values * weights[:, None], axis=0) / tl.sum(weights, axis=0)
    tl.store(out + row * WIDTH + columns, mixed.to(out.dtype.element_ty), mask=columns < WIDTH)


def part_buffers(splits: int, out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Where the parts and their sums go; one part is the whole and goes into `out` [..., width] as it is."""
    if splits == 1:
        return out, None
    rows, width = out[..., 0].numel(), out.shape[-1]
    parts = torch.empty(splits, rows, width, dtype=torch.float32, device=out.device)
    return parts, torch.empty(splits, rows, dtype=torch.float32, device=out.device)


def join_splits(parts: torch.Tensor, sums: torch.Tensor, out: torch.Tensor) -> None:
    """parts float32 [splits, rows, width] and sums float32 [splits, rows], base 2, into out [..., width].

    Of every row at least one part must have seen a key.
    """
    splits, rows, width = parts.shape
    block = min(COLUMNS, triton.next_power_of_2(width))
    grid = (rows, triton.cdiv(width, block))
    _join[grid](parts, sums, out, rows, WIDTH=width, SPLITS=splits, BLOCK_W=block, num_warps=4)
