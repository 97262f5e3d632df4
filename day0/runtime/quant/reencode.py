"""MXFP4 as E4M3 numbers under one power of two for each block: the same values where the block's span allows.

A code of MXFP4 is 2^k or 1.5 x 2^k, so E4M3 with its three bits of fraction never lacks precision, only range: under a
scale of 2^s it holds 2^k for k - s from -9 (its least subnormal) to 8, and 1.5 x 2^k from -8 to 8. With s chosen so
that the largest number of a block lies at the top, a block is exact if and only if

    (exponent of its largest number) - (least power of two that divides its numbers) <= 17

where the latter is k - 1 for 1.5 x 2^k. Codes used fully, that is a span of group scales of at most 14: the largest
code is 1.5 x 2^2, the least 2^-1, and 1.5 divides down to 2^-1 too. What lies below is rounded to the nearest, ties to
even, and is wrong by at most 2^(s - 10), which is 2^-18 of the largest power of two in the block.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from day0.profile.packing_formats import fp8_block

TOP = 8
"""Exponent of the largest power of two in E4M3; 1.5 of it (384) is still below the largest number (448)."""
LEAST = -9
"""Exponent of its least subnormal."""
LEAST_SCALE = -127
"""Exponent of the least E8M0 scale."""
SIDE = 128
"""Rows and columns of a block (the layout of DeepSeek-V3); the last ones may be smaller."""
FORMAT = fp8_block(SIDE, SIDE, "scale", "F8_E8M0")
"""What re-encoded matrices are read back by."""


@dataclass(frozen=True, slots=True)
class Float8Blocks:
    """weight [rows, columns] E4M3, scale [row blocks, column blocks] E8M0, and which blocks hold the same numbers.

    A block with NaN is NaN there, and counts as exact.
    """

    weight: torch.Tensor
    scale: torch.Tensor
    exact: torch.Tensor


def scale_grid(rows: int, columns: int) -> tuple[int, int]:
    """Blocks down and across a matrix."""
    return -(-rows // SIDE), -(-columns // SIDE)


def encode_into(numbers: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> int:
    """A whole matrix, a row of blocks at a time so that little is needed meanwhile; gives how many blocks were rounded.

    numbers [rows, columns] of MXFP4, in float32 or bfloat16, which both hold them; weight [rows, columns] and scale
    [row blocks, column blocks] are bytes.
    """
    rounded = 0
    for place, start in enumerate(range(0, len(numbers), SIDE)):
        blocks = encode_blocks(numbers[start : start + SIDE].float(), SIDE, SIDE)
        weight[start : start + SIDE].copy_(blocks.weight.view(torch.uint8))
        scale[place].copy_(blocks.scale.view(torch.uint8)[0])
        rounded += int((~blocks.exact).sum())
    return rounded


def encode_blocks(numbers: torch.Tensor, block_rows: int, block_columns: int) -> Float8Blocks:
    """numbers [rows, columns] float32 with at most two significant bits each -> E4M3 under powers of two."""
    rows, columns = numbers.shape
    grid = -(-rows // block_rows), -(-columns // block_columns)
    padded = numbers.new_zeros(grid[0] * block_rows, grid[1] * block_columns)
    padded[:rows, :columns] = numbers
    blocks = padded.unflatten(1, (grid[1], block_columns)).unflatten(0, (grid[0], block_rows)).transpose(1, 2)
    top, least = _span(blocks)
    exponent = (top - TOP).clamp(min=LEAST_SCALE)
    # Two halves of the shift: one alone may be beyond what float32 holds.
    half = (-exponent).div(2, rounding_mode="floor")[..., None, None]
    shifted = torch.ldexp(torch.ldexp(blocks, half), -exponent[..., None, None] - half)
    weight = shifted.transpose(1, 2).reshape(padded.shape)[:rows, :columns].to(torch.float8_e4m3fn)
    scale = (exponent + 127).to(torch.uint8).view(torch.float8_e8m0fnu)
    return Float8Blocks(weight, scale, least - exponent >= LEAST)


def _span(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest exponent in each block [.., rows, columns], and the least of a power of two that divides a number.

    A block of zeros has the exponents of 1; zeros and NaN do not count.
    """
    fraction, exponent = torch.frexp(blocks)  # 0.5 <= |fraction| < 1
    counted = blocks.isfinite() & (blocks != 0)
    three = fraction.abs() == 0.75
    largest = torch.where(counted, exponent - 1, -(2**20)).amax((-2, -1))
    divisor = torch.where(counted, exponent - 1 - three.int(), 2**20).amin((-2, -1))
    some = counted.any(-1).any(-1)
    return torch.where(some, largest, 0), torch.where(some, divisor, 0)
