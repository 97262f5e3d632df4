"""Where an image patch is: a learnt grid resampled to the image, a fixed signal for time, a rotation over two axes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

FREQUENCY_BASE = 10_000.0
"""Base of both the time signal's and the rotation's frequencies; MoonViT's config has no key for it."""

Item = tuple[int, int, int]
"""Frames, rows and columns of one image or clip, in patches."""


def vision_position_embed(grid: torch.Tensor, items: Sequence[Item]) -> torch.Tensor:
    """What is added to the patches of all items in turn ("divided_fixed"): [patches, width] float32.

    `grid` is [grid rows, grid columns, width]. Only clips get a time signal, but then on every frame.
    """
    return torch.cat([_item_positions(grid, item) for item in items])


def _item_positions(grid: torch.Tensor, item: Item) -> torch.Tensor:
    frames, rows, columns = item
    space = resample(grid, rows, columns)  # [rows, columns, width]
    if frames == 1:
        return space.flatten(0, 1)
    time = time_signal(frames, space.shape[-1], space.device)  # [frames, width]
    return (time[:, None, None, :] + space).flatten(0, 2)


def resample(grid: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """The learnt grid at another size, [rows, columns, width] float32: bilinear, half-pixel centres, no antialias."""
    learnt = grid.float()
    if learnt.shape[:2] == (rows, columns):
        return learnt
    channels_first = learnt.permute(2, 0, 1).unsqueeze(0)
    resized = functional.interpolate(channels_first, size=(rows, columns), mode="bilinear", align_corners=False)
    return resized[0].permute(1, 2, 0)


def time_signal(frames: int, width: int, device: torch.device | None = None) -> torch.Tensor:
    """[sin(f w) | cos(f w)] for frame f, [frames, width] float32 (Vaswani et al. 2017); frame 0 is not all zero."""
    half = width // 2
    index = torch.arange(half, dtype=torch.float32, device=device)
    frequencies = FREQUENCY_BASE ** (-index / half)
    angles = torch.outer(torch.arange(frames, dtype=torch.float32, device=device), frequencies)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def rotary_angles(items: Sequence[Item], head_dim: int, device: torch.device | None = None) -> torch.Tensor:
    """Rotation angles of all items' patches, [patches, head_dim / 2] float32, the same for every frame.

    Frequency i serves two neighbouring channel pairs: pair 2i turns with the column, pair 2i + 1 with the row.
    """
    return torch.cat([_item_angles(item, head_dim, device) for item in items])


def _item_angles(item: Item, head_dim: int, device: torch.device | None) -> torch.Tensor:
    frames, rows, columns = item
    index = torch.arange(head_dim // 4, dtype=torch.float32, device=device)
    frequencies = FREQUENCY_BASE ** (-4.0 * index / head_dim)
    by_row = torch.outer(torch.arange(rows, dtype=torch.float32, device=device), frequencies)
    by_column = torch.outer(torch.arange(columns, dtype=torch.float32, device=device), frequencies)
    both = (by_column[None, :, :].expand(rows, -1, -1), by_row[:, None, :].expand(-1, columns, -1))
    angles = torch.stack(both, dim=-1)  # [rows, columns, head_dim / 4, 2]
    return angles.reshape(rows * columns, head_dim // 2).repeat(frames, 1)


def vision_rope_2d(q: torch.Tensor, k: torch.Tensor, angles: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn neighbouring channels (2j, 2j + 1) of q and k [patches, heads, head_dim] by angles[:, j], in float32."""
    cos, sin = angles.cos()[:, None, :], angles.sin()[:, None, :]
    return _turn(q, cos, sin), _turn(k, cos, sin)


def _turn(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    even, odd = heads.float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)
    return turned.flatten(-2).to(heads.dtype)
