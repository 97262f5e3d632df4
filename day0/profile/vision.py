"""Vision towers and their projectors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VisionSpec:
    """A MoonViT-style tower and its patch-merging projector (Kimi K3).

    Attention works at `qkv_size`, which need not be `hidden_size`. `position_grid` is the learnt grid's rows and
    columns, resampled for other image sizes; a clip has at most `position_frames` frames. `merge` patches (rows,
    columns) become one token of `text_hidden_size`, which replaces a `placeholder_token_id` of the prompt.
    """

    patch_size: int
    hidden_size: int
    qkv_size: int
    num_layers: int
    num_heads: int
    mlp_width: int
    position_grid: tuple[int, int]
    position_frames: int
    merge: tuple[int, int]
    text_hidden_size: int
    norm_eps: float
    projector_norm_eps: float
    placeholder_token_id: int

    @property
    def head_dim(self) -> int:
        return self.qkv_size // self.num_heads

    @property
    def merged_size(self) -> int:
        """Width of one merged token before the projector."""
        return self.merge[0] * self.merge[1] * self.hidden_size
