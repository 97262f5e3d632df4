"""Operators of vision towers and their projectors; images are part of prompts only."""

from __future__ import annotations

from day0.operators.contract import Operator, Phase, contract
from day0.operators.tolerance import MATMUL, POINTWISE, RECURRENCE, REDUCTION

_VISION: tuple[Phase, ...] = ("prefill",)

# fmt: off
VISION: tuple[Operator, ...] = (
    contract("vision_patch_embed", "vision", "linear map of every patch (convolution with stride = patch)",
             "x[patches patch_values]; weight[width patch_values]", "y[patches width]", MATMUL,
             "arXiv 2010.11929", phases=_VISION),
    contract("vision_position_embed", "vision",
             "learned grid, resampled bilinearly to the item's size, and a sine/cosine code of the frame",
             "grid[grid_rows grid_columns width]", "y[patches width] float32", RECURRENCE, "MoonViT; Kimi K3",
             phases=_VISION),
    contract("vision_rope_2d", "vision", "rotation of neighbouring channel pairs by column and row in turn",
             "q[patches heads head_dim]; k[patches heads head_dim]; angles[patches rope_pairs] float32",
             "q_out[patches heads head_dim]; k_out[patches heads head_dim]", POINTWISE,
             "MoonViT, arXiv 2504.07491",
             phases=_VISION),
    contract("vision_attention", "vision", "softmax attention among all patches of an item, none between items",
             "q[patches heads head_dim]; k[patches heads head_dim]; v[patches heads head_dim]",
             "y[patches heads head_dim]", MATMUL,
             "MoonViT, arXiv 2504.07491", attributes="scale", phases=_VISION),
    contract("patch_merge", "vision", "mean over frames, then each cell of patches as one long vector",
             "x[patches width]", "y[merged cell width]", REDUCTION, "Kimi K3", phases=_VISION),
)
# fmt: on
