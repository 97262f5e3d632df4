"""Where an image patch is: a learnt grid resampled to the image, a fixed signal for time, a rotation over two axes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

FREQUENCY_BASE = 10_000.0
"""Base of the time signal's frequencies, and of the rotation's where a config has no key for it (MoonViT)."""

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


def vision_grid_embed(x: torch.Tensor, grid: torch.Tensor, items: Sequence[Item], resampling: str) -> torch.Tensor:
    """x [patches, width] plus the learnt grid [grid rows, grid columns, width], resampled to each item in float32.

    Every frame of an item gets the same.
    """
    parts = [resample(grid, rows, columns, resampling).flatten(0, 1).repeat(n, 1) for n, rows, columns in items]
    return (x + torch.cat(parts)).to(x.dtype)


def vision_frame_embed(x: torch.Tensor, items: Sequence[Item]) -> torch.Tensor:
    """x [patches, width] plus the time signal of each patch's frame; nothing is added to items of one frame."""
    parts = []
    for frames, rows, columns in items:
        signal = time_signal(frames, x.shape[-1], x.device)
        parts.append((signal if frames > 1 else torch.zeros_like(signal)).repeat_interleave(rows * columns, dim=0))
    return (x + torch.cat(parts)).to(x.dtype)


def resample(grid: torch.Tensor, rows: int, columns: int, rule: str = "bilinear") -> torch.Tensor:
    """The learnt grid at another size, [rows, columns, width] float32, without antialiasing.

    "bilinear" and "bicubic" (a = -0.75) take half-pixel centres, "bilinear_corners" puts the outermost places of both
    sizes on each other.
    """
    learnt = grid.float()
    if learnt.shape[:2] == (rows, columns):
        return learnt
    mode, _, corners = rule.partition("_")
    channels_first = learnt.permute(2, 0, 1).unsqueeze(0)
    resized = functional.interpolate(channels_first, size=(rows, columns), mode=mode, align_corners=bool(corners))
    return resized[0].permute(1, 2, 0)


def time_signal(frames: int, width: int, device: torch.device | None = None) -> torch.Tensor:
    """[sin(f w) | cos(f w)] for frame f, [frames, width] float32 (Vaswani et al. 2017); frame 0 is not all zero."""
    half = width // 2
    index = torch.arange(half, dtype=torch.float32, device=device)
    frequencies = FREQUENCY_BASE ** (-index / half)
    angles = torch.outer(torch.arange(frames, dtype=torch.float32, device=device), frequencies)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def rotary_angles(
    items: Sequence[Item],
    head_dim: int,
    device: torch.device | None = None,
    *,
    theta: float = FREQUENCY_BASE,
    in_turn: bool = True,
) -> torch.Tensor:
    """Rotation angles of all items' patches, [patches, head_dim / 2] float32, the same for every frame.

    Frequency i serves two channel pairs. `in_turn`: pair 2i turns with the column, pair 2i + 1 with the row
    (MoonViT); else all pairs of the row come first, then those of the column (Qwen2-VL).
    """
    return torch.cat([_item_angles(item, head_dim, device, theta, in_turn) for item in items])


def _item_angles(item: Item, head_dim: int, device: torch.device | None, theta: float, in_turn: bool) -> torch.Tensor:
    frames, rows, columns = item
    index = torch.arange(head_dim // 4, dtype=torch.float32, device=device)
    frequencies = theta ** (-4.0 * index / head_dim)
    by_row = torch.outer(torch.arange(rows, dtype=torch.float32, device=device), frequencies)
    by_column = torch.outer(torch.arange(columns, dtype=torch.float32, device=device), frequencies)
    across, down = by_column[None, :, :].expand(rows, -1, -1), by_row[:, None, :].expand(-1, columns, -1)
    angles = torch.stack((across, down), dim=-1) if in_turn else torch.cat((down, across), dim=-1)
    return angles.reshape(rows * columns, head_dim // 2).repeat(frames, 1)


def vision_axial_rope(
    q: torch.Tensor, k: torch.Tensor, angles: torch.Tensor, layout: str, apart: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn channel pairs of q and k [patches, heads, head_dim] by angles [patches, head_dim / 2], in float32.

    "neox" pairs channel i with i + head_dim / 2, "interleaved" neighbours; `apart` does so within each half of the
    head, which then has the first or the second half of the angles.
    """
    if not apart:
        return _turn_pairs(q, angles, layout), _turn_pairs(k, angles, layout)
    turned = [
        [_turn_pairs(half, part, layout) for half, part in zip(x.chunk(2, -1), angles.chunk(2, -1), strict=True)]
        for x in (q, k)
    ]
    return torch.cat(turned[0], dim=-1), torch.cat(turned[1], dim=-1)


def rotary_angles_3d(
    items: Sequence[Item], pairs: int, theta: float, device: torch.device | None = None
) -> torch.Tensor:
    """Rotation angles of all items' patches by frame, row and column, [patches, pairs] float32 (MiniMax M3).

    Each axis has a third of the pairs, with frequencies of its own from fast to slow.
    """
    third = pairs // 3
    frequencies = theta ** -(torch.arange(third, dtype=torch.float32, device=device) / third)
    parts = []
    for item in items:
        axes = torch.meshgrid(*(torch.arange(size, device=device) for size in item), indexing="ij")
        places = torch.stack(axes, dim=-1).flatten(0, 2)  # [patches, 3]
        parts.append((places[..., None] * frequencies).flatten(1))
    return torch.cat(parts)


def vision_rope_3d(q: torch.Tensor, k: torch.Tensor, angles: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn channels (i, i + pairs) of q and k [patches, heads, head_dim] by angles [patches, pairs]; others pass."""
    return _turn_first(q, angles), _turn_first(k, angles)


def _turn_first(heads: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    turned, kept = heads.tensor_split([2 * angles.shape[-1]], dim=-1)
    return torch.cat((_turn_pairs(turned, angles, "neox"), kept), dim=-1)


def _turn_pairs(heads: torch.Tensor, angles: torch.Tensor, layout: str) -> torch.Tensor:
    cos, sin = angles.cos()[:, None, :], angles.sin()[:, None, :]
    if layout == "interleaved":
        return _turn(heads, cos, sin)
    first, second = heads.float().chunk(2, -1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).to(heads.dtype)


def vision_rope_2d(q: torch.Tensor, k: torch.Tensor, angles: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn neighbouring channels (2j, 2j + 1) of q and k [patches, heads, head_dim] by angles[:, j], in float32."""
    cos, sin = angles.cos()[:, None, :], angles.sin()[:, None, :]
    return _turn(q, cos, sin), _turn(k, cos, sin)


def _turn(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    even, odd = heads.float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)
    return turned.flatten(-2).to(heads.dtype)
