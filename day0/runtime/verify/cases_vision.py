"""Operators of vision towers: inputs, and what float64 says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from day0.runtime.verify import exact
from day0.runtime.verify.draw import Draw, Facts, Prepared
from day0.runtime.verify.exact import Array

ITEMS = ((1, 4, 6), (3, 2, 2))
"""An image and a clip, in patches: frames, rows, columns."""
PATCHES = sum(frames * rows * columns for frames, rows, columns in ITEMS)


def _vision_position_embed(draw: Draw, f: Facts) -> Prepared:
    grid, grid64 = draw.normal(f["grid_rows"], f["grid_columns"], f["width"])
    return (grid, ITEMS), (np.concatenate([exact.position_embed(grid64, item) for item in ITEMS]),)


def _vision_rope_2d(draw: Draw, f: Facts) -> Prepared:
    (q, q64), (k, k64) = (draw.normal(f["patches"], f["heads"], f["head_dim"]) for _ in "qk")
    angles, angles64 = draw.rounded(draw.rng.uniform(-3.0, 3.0, (f["patches"], f["rope_pairs"])), torch.float32)
    turned = [exact.rope(x, np.cos(angles64), np.sin(angles64), "interleaved") for x in (q64, k64)]
    return (q, k, angles), tuple(turned)


def _vision_attention(draw: Draw, f: Facts) -> Prepared:
    lengths = [frames * rows * columns for frames, rows, columns in ITEMS]
    (q, q64), (k, k64), (v, v64) = (draw.normal(f["patches"], f["heads"], f["head_dim"]) for _ in "qkv")
    return (q, k, v, lengths, f["scale"]), (exact.full_attention(q64, k64, v64, lengths, f["scale"]),)


def _patch_merge(draw: Draw, f: Facts) -> Prepared:
    x, x64 = draw.normal(f["patches"], f["width"])
    merge = (f["cell"] // 2, 2) if f["cell"] > 1 else (1, 1)
    return (x, ITEMS, merge), (exact.patch_merge(x64, ITEMS, merge),)


def _biased_patch_embed(draw: Draw, f: Facts) -> Prepared:
    x, x64 = draw.normal(f["patches"], f["patch_values"])
    weight, weight64 = draw.normal(f["width"], f["patch_values"], scale=f["patch_values"] ** -0.5)
    bias, bias64 = draw.normal(f["width"])
    return (x, weight, bias), (x64 @ weight64.T + bias64,)


def _vision_grid_embed(draw: Draw, f: Facts) -> Prepared:
    (x, x64), side = draw.normal(f["patches"], f["width"]), round(f["places"] ** 0.5)
    grid, grid64 = draw.normal(side, side, f["width"])
    added = [
        np.tile(_resampled(grid64, rows, columns, f["resampling"]).reshape(rows * columns, -1), (frames, 1))
        for frames, rows, columns in ITEMS
    ]
    return (x, grid, ITEMS, f["resampling"]), (x64 + np.concatenate(added),)


def _resampled(grid: Array, rows: int, columns: int, rule: str) -> Array:
    return np.einsum("ri,ijw,cj->rcw", _shares(rows, len(grid), rule), grid, _shares(columns, grid.shape[1], rule))


def _shares(target: int, size: int, rule: str) -> Array:
    """What each place of a grid gives to each of the target's, [target, size]; beyond the edge the edge counts."""
    shares = np.zeros((target, size))
    for place in range(target):
        if rule == "bilinear_corners":
            source = place * (size - 1) / max(target - 1, 1)
        else:
            source = (place + 0.5) * size / target - 0.5
            source = source if rule == "bicubic" else min(max(source, 0.0), size - 1.0)
        for tap in range(int(np.floor(source)) - 1, int(np.floor(source)) + 3):
            distance = abs(source - tap)
            share = _cubic(distance) if rule == "bicubic" else max(0.0, 1.0 - distance)
            shares[place, min(max(tap, 0), size - 1)] += share
    return shares


def _cubic(distance: float, a: float = -0.75) -> float:
    """Keys' kernel of four taps (1981)."""
    if distance <= 1:
        return (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    return a * (distance**3 - 5 * distance**2 + 8 * distance - 4) if distance < 2 else 0.0


def _vision_frame_embed(draw: Draw, f: Facts) -> Prepared:
    x, x64 = draw.normal(f["patches"], f["width"])
    signals = [exact.position_embed(np.zeros((1, 1, f["width"])), item) for item in ITEMS]
    return (x, ITEMS), (x64 + np.concatenate(signals),)


def _vision_axial_rope(draw: Draw, f: Facts) -> Prepared:
    (q, q64), (k, k64) = (draw.normal(f["patches"], f["heads"], f["head_dim"]) for _ in "qk")
    angles, angles64 = draw.rounded(draw.rng.uniform(-3.0, 3.0, (f["patches"], f["rope_pairs"])), torch.float32)
    turned = [_turned(x, angles64, f["layout"], 2 if f["apart"] else 1) for x in (q64, k64)]
    return (q, k, angles, f["layout"], f["apart"]), tuple(turned)


def _turned(x: Array, angles: Array, layout: str, halves: int) -> Array:
    parts = zip(np.split(x, halves, axis=-1), np.split(angles, halves, axis=-1), strict=True)
    return np.concatenate([exact.rope(part, np.cos(by), np.sin(by), layout) for part, by in parts], axis=-1)


def _vision_rope_3d(draw: Draw, f: Facts) -> Prepared:
    (q, q64), (k, k64) = (draw.normal(f["patches"], f["heads"], f["head_dim"]) for _ in "qk")
    angles, angles64 = draw.rounded(draw.rng.uniform(-3.0, 3.0, (f["patches"], f["rope_pairs"])), torch.float32)
    cos, sin, width = np.cos(angles64), np.sin(angles64), 2 * f["rope_pairs"]
    parts = ((exact.rope(x[..., :width], cos, sin, "neox"), x[..., width:]) for x in (q64, k64))
    return (q, k, angles), tuple(np.concatenate(part, axis=-1) for part in parts)


def _vision_window_attention(draw: Draw, f: Facts) -> Prepared:
    q, q64 = draw.normal(f["patches"], f["heads"], f["head_dim"])
    (k, k64), (v, v64) = (draw.normal(f["patches"], f["kv_heads"], f["head_dim"]) for _ in "kv")
    side = f["window_side"]
    squares = np.array(
        [
            (index, frame, *((row // side, column // side) if side else (0, 0)))
            for index, item in enumerate(ITEMS)
            for frame, row, column in np.ndindex(*item)
        ]
    )
    expected = np.zeros(q64.shape)
    for patch, head in np.ndindex(f["patches"], f["heads"]):
        seen, group = (squares == squares[patch]).all(axis=1), head // (f["heads"] // f["kv_heads"])
        weights = exact.softmax(q64[patch, head] @ k64[seen, group].T * f["scale"])
        expected[patch, head] = weights @ v64[seen, group]
    return (q, k, v, ITEMS, f["scale"], side), (expected,)


VISION: Mapping[str, Callable[[Draw, Facts], Prepared]] = {
    "vision_position_embed": _vision_position_embed,
    "vision_rope_2d": _vision_rope_2d,
    "vision_attention": _vision_attention,
    "patch_merge": _patch_merge,
    "biased_patch_embed": _biased_patch_embed,
    "vision_grid_embed": _vision_grid_embed,
    "vision_frame_embed": _vision_frame_embed,
    "vision_axial_rope": _vision_axial_rope,
    "vision_rope_3d": _vision_rope_3d,
    "vision_window_attention": _vision_window_attention,
}
"""How inputs and expected outputs of each operator are made."""
