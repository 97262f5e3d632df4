"""RMS norms in Triton, plain and gated: a program holds whole rows, so that each number is read once."""

from __future__ import annotations

from typing import Literal

import torch
import triton
import triton.language as tl

NUMBERS = 4096
"""Numbers of a program where rows are short."""


@triton.jit
def _norm(
    x, weight, gate, out, rows, width, eps,
    GATE: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tl.arange(0, BLOCK)
    is_column = column < width
    inside = (row < rows)[:, None] & is_column[None, :]
    at = row[:, None] * width + column[None, :]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    factor = tl.load(weight + column, mask=is_column, other=0.0).to(tl.float32)
    normed = value * tl.rsqrt(tl.sum(value * value, axis=1) / width + eps)[:, None]
    if GATE == "":
        # The models' own code rounds before the weight, and so does the reference.
        found = normed.to(x.dtype.element_ty).to(tl.float32) * factor[None, :]
    else:
        opened = tl.load(gate + at, mask=inside, other=0.0).to(tl.float32)
        share = 1.0 / (1.0 + tl.exp(-opened))
        if GATE == "silu":
            share *= opened
        found = normed * factor[None, :] * share
    tl.store(out + at, found.to(out.dtype.element_ty), mask=inside)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """As the reference of this name."""
    return _launch(x, weight, None, "", eps, x.dtype)


def gated_rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    gate: torch.Tensor,
    eps: float,
    activation: Literal["sigmoid", "silu"] = "sigmoid",
) -> torch.Tensor:
    """As the reference of this name: float32."""
    return _launch(x, weight, gate.contiguous(), activation, eps, torch.float32)


def _launch(
    x: torch.Tensor, weight: torch.Tensor, gate: torch.Tensor | None, form: str, eps: float, dtype: torch.dtype
) -> torch.Tensor:
    x = x.contiguous()
    width = x.shape[-1]
    rows, block = x.numel() // width, triton.next_power_of_2(width)
    each = max(1, NUMBERS // block)
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    _norm[triton.cdiv(rows, each),](
        *(x, weight, gate, out, rows, width, eps),
        GATE=form,
        BLOCK_ROWS=each,
        BLOCK=block,
        num_warps=8 if block >= NUMBERS else 4,
    )
    return out
