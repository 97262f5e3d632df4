"""Where a patch is: a learnt grid resampled to the image, a fixed signal for time, and a rotation over two axes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from day0.runtime.vision.grid import PatchGrid

FREQUENCY_BASE = 10_000.0
"""Base of both the time signal's and the rotation's frequencies; the config has no key for it."""


def position_embedding(learnt: Tensor, item: PatchGrid) -> Tensor:
    """What is added to the patches of one item ("divided_fixed"): [patches, hidden] float32.

    `learnt` is [grid rows, grid columns, hidden]. Only clips get a time signal, but then on every frame.
    """
    space = resample(learnt, item.rows, item.columns)  # [rows, columns, hidden]
    if item.frames == 1:
        return space.flatten(0, 1)
    time = time_signal(item.frames, space.shape[-1], device=space.device)  # [frames, hidden]
    return (time[:, None, None, :] + space).flatten(0, 2)


def resample(learnt: Tensor, rows: int, columns: int) -> Tensor:
    """The learnt grid at another size, [rows, columns, hidden] float32: bilinear, half-pixel centres, no antialias."""
    grid = learnt.float()
    if grid.shape[:2] == (rows, columns):
        return grid
    channels_first = grid.permute(2, 0, 1).unsqueeze(0)
    resized = F.interpolate(channels_first, size=(rows, columns), mode="bilinear", align_corners=False)
    return resized[0].permute(1, 2, 0)


def time_signal(frames: int, width: int, *, device: torch.device | None = None) -> Tensor:
    """[sin(f w) | cos(f w)] for frame f, [frames, width] float32 (Vaswani et al. 2017); frame 0 is not all zero."""
    half = width // 2
    index = torch.arange(half, dtype=torch.float32, device=device)
    frequencies = FREQUENCY_BASE ** (-index / half)
    angles = torch.outer(torch.arange(frames, dtype=torch.float32, device=device), frequencies)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def rotary_angles(item: PatchGrid, head_dim: int, *, device: torch.device | None = None) -> Tensor:
    """Rotation angles of one item's patches, [patches, head_dim / 2] float32, the same for every frame.

    Frequency i serves two neighbouring channel pairs: pair 2i turns with the column, pair 2i + 1 with the row.
    """
    index = torch.arange(head_dim // 4, dtype=torch.float32, device=device)
    frequencies = FREQUENCY_BASE ** (-4.0 * index / head_dim)
    rows = torch.arange(item.rows, dtype=torch.float32, device=device)
    columns = torch.arange(item.columns, dtype=torch.float32, device=device)
    by_row = torch.outer(rows, frequencies)[:, None, :].expand(-1, item.columns, -1)
    by_column = torch.outer(columns, frequencies)[None, :, :].expand(item.rows, -1, -1)
    angles = torch.stack([by_column, by_row], dim=-1)  # [rows, columns, head_dim / 4, 2]
    return angles.reshape(item.rows * item.columns, head_dim // 2).repeat(item.frames, 1)


def rotate(heads: Tensor, angles: Tensor) -> Tensor:
    """Turn neighbouring channels (2j, 2j + 1) of [patches, heads, head_dim] by [patches, head_dim / 2] angles."""
    cos, sin = angles.cos()[:, None, :], angles.sin()[:, None, :]
    even, odd = heads.float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)
    return turned.flatten(-2).to(heads.dtype)
