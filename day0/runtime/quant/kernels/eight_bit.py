"""E4M3 matrices under scales of blocks -> numbers, in Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from day0.runtime.quant.kernels.codes import e4m3, power_of_two

ROWS, COLUMNS, WARPS = 128, 128, 8


@triton.jit
def _convert_blocks(
    weight, scale, out, rows, columns, column_blocks,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr, E8M0: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """A tile that lies in one block, so that its scale is one number."""
    matrix = tl.program_id(2).to(tl.int64)
    row, column = tl.program_id(1) * ROWS, tl.program_id(0) * COLUMNS
    row_blocks = tl.cdiv(rows, BLOCK_ROWS)
    at = (matrix * row_blocks + row // BLOCK_ROWS) * column_blocks + column // BLOCK_COLUMNS
    stored = tl.load(scale + at)
    factor = power_of_two(stored) if E8M0 else stored.to(tl.float32)
    down, across = row + tl.arange(0, ROWS), column + tl.arange(0, COLUMNS)
    inside = (down < rows)[:, None] & (across < columns)[None, :]
    cells = matrix * rows * columns + down[:, None].to(tl.int64) * columns + across[None, :]
    numbers = e4m3(tl.load(weight + cells, mask=inside, other=0)) * factor
    tl.store(out + cells, numbers.to(out.dtype.element_ty), mask=inside)


def convert_blocks(
    weight: torch.Tensor, scale: torch.Tensor, block_rows: int, block_columns: int, out: torch.Tensor
) -> torch.Tensor:
    """Fill out [.., rows, columns], contiguous; inputs as `read_by_block`, blocks multiples of 128 x 128.

    weight [.., rows, columns] bytes of E4M3; scale [.., row blocks, column blocks] float32, bfloat16 or E8M0 bytes.
    """
    rows, columns = out.shape[-2:]
    assert block_rows % ROWS == 0 and block_columns % COLUMNS == 0 and out.is_contiguous(), "tiles lie in one block"
    exponents = scale.dtype in (torch.uint8, torch.float8_e8m0fnu)
    _convert_blocks[triton.cdiv(columns, COLUMNS), triton.cdiv(rows, ROWS), out.shape[:-2].numel()](
        *(weight.contiguous().view(torch.uint8), scale.contiguous().view(torch.uint8) if exponents else scale),
        *(out, rows, columns, scale.shape[-1]),
        BLOCK_ROWS=block_rows,
        BLOCK_COLUMNS=block_columns,
        E8M0=exponents,
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        num_warps=WARPS,
    )
    return out
