"""Numbers of one byte each, E4M3 or integers, under scales for the matrix, its rows, groups of them, or blocks."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from day0.profile.quantization import WeightFormat
from day0.runtime.quant.tables import Tables, look_up


def read_by_block(tables: Tables, packing: WeightFormat, parts: Mapping[str, torch.Tensor], out: torch.Tensor) -> None:
    """weight [.., rows, columns] E4M3, scale [.., row blocks, column blocks]; the last blocks may be smaller.

    Blocks are `block_rows` x `group_size`: 128 x 128 (DeepSeek-V3, arXiv 2412.19437), 1 x 32 in MXFP8.
    """
    look_up(tables.floats, parts["weight"], out)
    rows, columns = out.shape[-2:]
    scale = tables.scales(parts["scale"], packing.part("scale").dtype)
    if packing.block_rows > 1:
        scale = scale.repeat_interleave(packing.block_rows, dim=-2)[..., :rows, :]
    if columns % packing.group_size:
        out.mul_(scale.repeat_interleave(packing.group_size, dim=-1)[..., :columns])
    else:
        out.unflatten(-1, (-1, packing.group_size)).mul_(scale[..., None])


def read_by_row(tables: Tables, packing: WeightFormat, parts: Mapping[str, torch.Tensor], out: torch.Tensor) -> None:
    """weight [.., rows, columns] E4M3, a scale for each row."""
    del packing
    look_up(tables.floats, parts["weight"], out)
    out.mul_(_each_row(parts["scale"], out))


def read_whole(tables: Tables, packing: WeightFormat, parts: Mapping[str, torch.Tensor], out: torch.Tensor) -> None:
    """weight [.., rows, columns] E4M3, one scale."""
    del packing
    look_up(tables.floats, parts["weight"], out)
    out.mul_(_each_row(parts["scale"], out))


def read_int8(tables: Tables, packing: WeightFormat, parts: Mapping[str, torch.Tensor], out: torch.Tensor) -> None:
    """weight [.., rows, columns] signed bytes, less a zero point where there is one, times a scale; by row or whole."""
    del tables, packing
    out.copy_(parts["weight"])
    if "zero_point" in parts:
        out.sub_(_each_row(parts["zero_point"], out))
    out.mul_(_each_row(parts["scale"], out))


def _each_row(stored: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """One number a row or one a matrix, however many axes of 1 it has, as [.., rows or 1, 1]."""
    matrices = out.shape[:-2].numel()
    return stored.float().reshape(*out.shape[:-2], stored.numel() // matrices, 1)
