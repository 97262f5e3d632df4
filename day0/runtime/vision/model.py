"""Tower and projector together: pixel values in, embeddings for the text model out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from day0.profile.profile import VisionSpec
from day0.runtime.ops.registry import Operators
from day0.runtime.trace import Trace
from day0.runtime.vision.grid import checked_grids
from day0.runtime.vision.preprocess import ImageInput
from day0.runtime.vision.projector import PatchMerger
from day0.runtime.vision.tower import VisionTower


class VisionModel(nn.Module):
    """The vision side of a model; its parameters are those of `profile/vision_tensors.py` below "vision."."""

    def __init__(self, spec: VisionSpec, ops: Operators) -> None:
        super().__init__()
        self.spec = spec
        self.tower = VisionTower(spec, ops)
        self.projector = PatchMerger(spec, ops)
        self.ops = ops

    @torch.inference_mode()
    def encode(
        self, pixel_values: torch.Tensor, grid_thw: Sequence[Sequence[int]], trace: Trace | None = None
    ) -> list[torch.Tensor]:
        """Embeddings of each item, [tokens, text hidden]; items do not see each other.

        `pixel_values` is [patches, 3, rows, columns] of all items in turn, `grid_thw` their (frames, rows, columns).
        InputError where the two do not fit together or the tower cannot take an item.
        """
        items = checked_grids(grid_thw, pixel_values.shape[0], self.spec)
        if not items:
            return []
        cells = self.ops["patch_merge"](self.tower(pixel_values, items, trace), items, self.spec.merge)
        if trace is not None:
            trace.save("vision.merged", cells)
        projected = self.projector(cells)
        if trace is not None:
            trace.save("vision.projected", projected)
        return list(projected.split([item.tokens(self.spec.merge) for item in items]))

    def encode_images(self, images: Sequence[ImageInput], trace: Trace | None = None) -> list[torch.Tensor]:
        """Embeddings of preprocessed images, in their order."""
        if not images:
            return []
        return self.encode(torch.cat([image.pixel_values for image in images]), [image.grid for image in images], trace)
