"""From patches to prompt tokens: frames are averaged, neighbours joined, the result projected to the text's width."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from day0.profile.profile import VisionSpec
from day0.runtime.vision.grid import PatchGrid


def merge_patches(x: Tensor, items: Sequence[PatchGrid], merge: tuple[int, int]) -> Tensor:
    """[patches, hidden] -> [tokens, patches per cell, hidden] ("sd2_tpool").

    A cell is `merge` (rows, columns) patches of the mean over frames; cells and the patches in one go by rows.
    """
    cells = []
    for part, item in zip(x.split([item.patches for item in items]), items, strict=True):
        still = part.view(item.frames, item.rows * item.columns, -1).mean(0)
        cell_rows, cell_columns = item.rows // merge[0], item.columns // merge[1]
        grid = still.view(cell_rows, merge[0], cell_columns, merge[1], -1)
        cells.append(grid.transpose(1, 2).reshape(cell_rows * cell_columns, merge[0] * merge[1], -1))
    return torch.cat(cells)


class PatchMerger(nn.Module):
    """norm(down(gelu(up x))) on joined cells, with the erf form of GELU and no norm in front ("patchmergerv2")."""

    def __init__(self, spec: VisionSpec) -> None:
        super().__init__()
        self.up = nn.Linear(spec.merged_size, spec.merged_size, bias=False)
        self.down = nn.Linear(spec.merged_size, spec.text_hidden_size, bias=False)
        self.norm = nn.RMSNorm(spec.text_hidden_size, eps=spec.projector_norm_eps)

    def forward(self, cells: Tensor) -> Tensor:
        """[tokens, patches per cell, hidden] -> [tokens, text hidden]."""
        return self.norm(self.down(F.gelu(self.up(cells.flatten(1)))))
