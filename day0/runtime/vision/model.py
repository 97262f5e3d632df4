"""Kimi K3's tower and projector together: pixel values in, embeddings for the text model out."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from day0.profile.profile import VisionSpec
from day0.runtime.ops.registry import Operators
from day0.runtime.trace import Trace
from day0.runtime.vision.encoder import ImageEncoder
from day0.runtime.vision.grid import PatchGrid
from day0.runtime.vision.projector import PatchMerger
from day0.runtime.vision.tower import VisionTower


class VisionModel(ImageEncoder):
    """The vision side of a model; its parameters are those of `profile/vision_tensors.py` below "vision."."""

    def __init__(self, spec: VisionSpec, ops: Operators) -> None:
        super().__init__(spec, spec.text_hidden_size)
        self.merge = spec.merge
        self.tower = VisionTower(spec, ops)
        self.projector = PatchMerger(spec, ops)
        self.ops = ops

    def embed(self, pixel_values: torch.Tensor, items: Sequence[PatchGrid], trace: Trace | None) -> torch.Tensor:
        cells = self.ops["patch_merge"](self.tower(pixel_values, items, trace), items, self.merge)
        if trace is not None:
            trace.save("vision.merged", cells)
        projected = self.projector(cells)
        if trace is not None:
            trace.save("vision.projected", projected)
        return projected
