"""Image patches: embedding them, attention among those of one item, joining neighbours into tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from day0.runtime.ops.vision_positions import Item


def vision_patch_embed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x [patches, patch values] times weight [width, patch values] transposed: a convolution with stride = patch."""
    return functional.linear(x, weight)


def biased_patch_embed(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The same plus bias [width]."""
    return functional.linear(x, weight, bias)


def vision_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: Sequence[int], scale: float
) -> torch.Tensor:
    """Softmax attention of [patches, heads, head_dim] among the patches of each item, none between items.

    Items lie one after another, `lengths` patches each. Scores and weights are float32.
    """
    items = zip(q.split(lengths), k.split(lengths), v.split(lengths), strict=True)
    return torch.cat([_attend(*item, scale) for item in items])


def vision_attention_sdpa(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: Sequence[int], scale: float
) -> torch.Tensor:
    """`vision_attention` by torch's fused attention, which never holds the [patches, patches] scores."""
    outputs = []
    for item in zip(q.split(lengths), k.split(lengths), v.split(lengths), strict=True):
        query, key, value = (part.transpose(0, 1).unsqueeze(0) for part in item)  # [1, heads, patches, head_dim]
        attended = functional.scaled_dot_product_attention(query, key, value, scale=scale)
        outputs.append(attended[0].transpose(0, 1))
    return torch.cat(outputs)


def vision_window_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, items: Sequence[Item], scale: float, side: int | None
) -> torch.Tensor:
    """Softmax attention among the patches of an item that share a square of `side` patches (None: all of them).

    Squares start in an item's upper left corner, those at its other edges may be smaller, and frames are apart
    (Qwen2.5-VL, arXiv 2502.13923). q [patches, heads, head_dim]; k and v [patches, kv_heads, head_dim], each head of
    which serves as many heads of queries. Scores and weights are float32.
    """
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    order, lengths = _squares(items, side)
    order = order.to(q.device)
    mixed = vision_attention(q[order], k[order], v[order], lengths, scale)
    return torch.empty_like(mixed).index_copy_(0, order, mixed)


def _squares(items: Sequence[Item], side: int | None) -> tuple[torch.Tensor, list[int]]:
    """The patches of all items by square, [patches] int64, and how many each square has."""
    names, squares = [], 0
    for frames, rows, columns in items:
        down, across = torch.arange(rows) // (side or rows), torch.arange(columns) // (side or columns)
        width = int(across[-1]) + 1
        frame = (int(down[-1]) + 1) * width
        inside = (down[:, None] * width + across).flatten()
        names.append((torch.arange(frames)[:, None] * frame + inside).flatten() + squares)
        squares += frames * frame
    name = torch.cat(names)
    return torch.argsort(name, stable=True), torch.bincount(name, minlength=squares).tolist()


ROWS_AT_ONCE = 256
"""Queries scored together: bounds the scores of an item of n patches to heads x 256 x n numbers."""


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    wide_k, wide_v = k.float(), v.float()
    outputs = []
    for rows in q.float().split(ROWS_AT_ONCE):
        weights = torch.softmax(torch.einsum("qhd,khd->hqk", rows, wide_k) * scale, dim=-1)
        outputs.append(torch.einsum("hqk,khd->qhd", weights, wide_v))
    return torch.cat(outputs).to(q.dtype)


def patch_merge(x: torch.Tensor, items: Sequence[Item], merge: tuple[int, int]) -> torch.Tensor:
    """x [patches, width] -> [merged, cell, width] ("sd2_tpool"): the mean over frames, cut into cells.

    A cell is `merge` (rows, columns) neighbouring patches; cells, and the patches in one, go by rows.
    """
    cells = []
    lengths = [frames * rows * columns for frames, rows, columns in items]
    for part, (frames, rows, columns) in zip(x.split(lengths), items, strict=True):
        still = part.unflatten(0, (frames, rows * columns)).mean(0)
        grid = still.view(rows // merge[0], merge[0], columns // merge[1], merge[1], -1)
        cells.append(grid.transpose(1, 2).flatten(2, 3).flatten(0, 1))
    return torch.cat(cells)
