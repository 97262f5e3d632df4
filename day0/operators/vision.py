"""Operators of vision towers and their projectors; images are part of prompts only.

Those of the tower that the runtime has come first, then what other lines of towers do otherwise.
"""

from __future__ import annotations

from day0.operators.contract import Operator, Phase, contract
from day0.operators.tolerance import EXACT, MATMUL, POINTWISE, RECURRENCE, REDUCTION

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
    contract("biased_patch_embed", "vision", "vision_patch_embed with a bias per channel",
             "x[patches patch_values]; weight[width patch_values]; bias[width]", "y[patches width]", MATMUL,
             "arXiv 2010.11929", phases=_VISION),
    contract("vision_grid_embed", "vision", "a learnt square of positions, resampled to the item's size, is added",
             "x[patches width]; grid[places width]", "y[patches width]", RECURRENCE,
             "Qwen3-VL; GLM-4.5V; SigLIP 2, arXiv 2502.14786", attributes="resampling", phases=_VISION),
    contract("vision_frame_embed", "vision", "a sine and cosine code of the frame's number is added",
             "x[patches width]", "y[patches width]", POINTWISE, "Kimi K2.5", phases=_VISION),
    contract("vision_place_embed", "vision", "a learnt vector for each coordinate of a patch's place is added",
             "x[patches width]; table[position_axes places width]", "y[patches width]", POINTWISE,
             "SigLIP, arXiv 2303.15343; Gemma 4", phases=_VISION),
    contract("vision_tile_embed", "vision", "learnt vectors of an image's tiles, a row of the table by aspect ratio",
             "x[patches width]; table[aspect_ratios tile_values]", "y[patches width]", POINTWISE, "Llama 3.2 Vision",
             phases=_VISION),
    contract("first_token", "vision", "a learnt vector is put before the patches of every item",
             "x[patches width]; token[width]", "y[patches width]", EXACT, "arXiv 2010.11929", phases=_VISION),
    contract("vision_axial_rope", "vision",
             "rotation of a head by a patch's row and column; pairs by layout, in each axis's own half where apart",
             "q[patches heads head_dim]; k[patches heads head_dim]; angles[patches rope_pairs] float32",
             "q_out[patches heads head_dim]; k_out[patches heads head_dim]", POINTWISE,
             "Qwen2-VL, arXiv 2409.12191; Llama 4; Gemma 4", attributes="layout apart", phases=_VISION),
    contract("vision_rope_3d", "vision",
             "rotation of a head's first channels by a patch's frame, row and column, a third of the pairs (i, i + "
             "rope_pairs) each",
             "q[patches heads head_dim]; k[patches heads head_dim]; angles[patches rope_pairs] float32",
             "q_out[patches heads head_dim]; k_out[patches heads head_dim]", POINTWISE, "MiniMax M3", phases=_VISION),
    contract("vision_window_attention", "vision",
             "softmax attention among the patches of an item that share a square of window_side patches a side; "
             "query heads share kv_heads in groups",
             "q[patches heads head_dim]; k[patches kv_heads head_dim]; v[patches kv_heads head_dim]",
             "y[patches heads head_dim]", MATMUL, "Qwen2.5-VL, arXiv 2502.13923", attributes="scale window_side",
             phases=_VISION),
    contract("patch_pool", "vision", "mean of each cell of patches, times a factor",
             "x[patches width]", "y[merged width]", REDUCTION, "Gemma 3, arXiv 2503.19786",
             attributes="pooled factor", phases=_VISION),
    contract("standardize", "vision", "x less a shift per channel, times a scale",
             "x[merged width]; shift[width]; scale[width]", "y[merged width]", POINTWISE, "Gemma 4", phases=_VISION),
    contract("bounds_clamp", "vision", "x between two stored numbers",
             "x[tokens width]; low[single]; high[single]", "y[tokens width]", POINTWISE, "Gemma 4", phases=_VISION),
    contract("quick_gelu", "activation", "x sigmoid(1.702 x)",
             "x[tokens width]", "y[tokens width]", POINTWISE, "arXiv 1606.08415", phases=_VISION),
    contract("relu", "activation", "the larger of x and 0",
             "x[tokens width]", "y[tokens width]", POINTWISE, "definition", phases=_VISION),
)
# fmt: on
