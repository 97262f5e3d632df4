"""What every encoder of images does: check what it is given, and hand out the embeddings of each image."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import nn

from day0.profile.profile import VisionSpec, VisionTower
from day0.runtime.trace import Trace
from day0.runtime.vision.grid import PatchGrid, checked_grids
from day0.runtime.vision.preprocess import ImageInput


class ImageEncoder(nn.Module, ABC):
    """Tower and projector; parameters carry the paths of the profile's tensors below "vision.".

    Subclasses say how patches become embeddings. `width` is that of an embedding: the text model's, once more for
    each of its layers that features are added behind.
    """

    def __init__(self, spec: VisionSpec | VisionTower, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.width = width

    @abstractmethod
    def embed(self, pixel_values: torch.Tensor, items: Sequence[PatchGrid], trace: Trace | None) -> torch.Tensor:
        """[patches, ...] of all items in turn -> [merged, width]."""

    @torch.inference_mode()
    def encode(
        self, pixel_values: torch.Tensor, grid_thw: Sequence[Sequence[int]], trace: Trace | None = None
    ) -> list[torch.Tensor]:
        """Embeddings of each item, [tokens, width]; items do not see each other.

        `pixel_values` is [patches, 3, (frames,) rows, columns] of all items in turn, patches by rows; `grid_thw` are
        the items' (frames, rows, columns). InputError where the two do not fit together or the tower cannot take an
        item.
        """
        items = checked_grids(grid_thw, pixel_values.shape[0], self.spec)
        if not items:
            return []
        embeddings = self.embed(pixel_values, items, trace)
        return list(embeddings.split([item.tokens(self.spec.merge) for item in items]))

    def cells(self, images: Sequence[ImageInput]) -> list[tuple[int, int]]:
        """Rows and columns of each image's tokens."""
        return [image.grid.cells(self.spec.merge) for image in images]

    def encode_images(self, images: Sequence[ImageInput], trace: Trace | None = None) -> list[torch.Tensor]:
        """Embeddings of preprocessed images, in their order."""
        if not images:
            return []
        return self.encode(torch.cat([image.pixel_values for image in images]), [image.grid for image in images], trace)
