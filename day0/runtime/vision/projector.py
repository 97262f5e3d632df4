"""From patches to prompt tokens: neighbours are joined and projected to the text model's width."""

from __future__ import annotations

import torch
from torch import nn

from day0.profile.profile import VisionSpec
from day0.runtime.models.linear import Linear, RMSNorm
from day0.runtime.ops.registry import Operators


class PatchMerger(nn.Module):
    """norm(down(gelu(up x))) on joined cells, with the erf form of GELU and no norm in front ("patchmergerv2")."""

    def __init__(self, spec: VisionSpec, ops: Operators) -> None:
        super().__init__()
        self.up = Linear(spec.merged_size, spec.merged_size, ops)
        self.down = Linear(spec.merged_size, spec.text_hidden_size, ops)
        self.norm = RMSNorm(spec.text_hidden_size, spec.projector_norm_eps, ops)
        self.ops = ops

    def forward(self, cells: torch.Tensor) -> torch.Tensor:
        """[merged, cell, hidden] -> [merged, text hidden]."""
        return self.norm(self.down(self.ops["gelu"](self.up(cells.flatten(1)), "erf")))
