"""From a decoded image to the patches a tower takes: resize, fill transparency, pad, normalise, cut."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from day0.errors import InputError
from day0.runtime.vision.grid import PatchGrid
from day0.runtime.vision.preprocess_config import Background, Chessboard, ImagePreprocessing, PatchLimits, PixelLimits


@dataclass(frozen=True, slots=True)
class ResizePlan:
    """Sizes in pixels: the image is scaled to (width, height), then padded to the right and at the bottom."""

    width: int
    height: int
    pad_width: int
    pad_height: int


@dataclass(frozen=True, slots=True)
class ImageInput:
    """One image, ready for the tower. `size` is its (width, height) before any resize, which prompts mention."""

    pixel_values: torch.Tensor  # [patches, 3, (frames,) patch_size, patch_size] float32, patches by rows
    grid: PatchGrid
    num_tokens: int
    size: tuple[int, int]


def plan_resize(width: int, height: int, config: ImagePreprocessing) -> ResizePlan:
    """To what size an image is scaled and padded; InputError for one that is too narrow."""
    if isinstance(config.limits, PatchLimits):
        return _padded(width, height, config.limits, config)
    return _scaled(width, height, config.limits, config)


def _padded(width: int, height: int, limits: PatchLimits, config: ImagePreprocessing) -> ResizePlan:
    """The largest scale up to 1 that keeps the limits; whole pixels below it, and padding to whole cells.

    The limit counts the whole patches of the original, so that a padded image may exceed it by its edge.
    """
    patch, longest = config.patch_size, limits.side * config.patch_size
    patches = max(1, width // patch) * max(1, height // patch)
    scale = min(1.0, sqrt(limits.patches / patches), longest / width, longest / height)
    new_width = min(max(1, int(width * scale)), longest)
    new_height = min(max(1, int(height * scale)), longest)
    cell_height, cell_width = config.cell
    return ResizePlan(new_width, new_height, -new_width % cell_width, -new_height % cell_height)


NARROWEST = 200
"""The longer side over the shorter one, at most: beyond it no whole cells keep the shape (Qwen2-VL)."""


def _scaled(width: int, height: int, limits: PixelLimits, config: ImagePreprocessing) -> ResizePlan:
    """Both sides to the nearest whole cells; where that leaves the limits, scaled as a whole, and cells within them."""
    if max(width, height) > NARROWEST * min(width, height):
        raise InputError(f"is {width} x {height}: one side is over {NARROWEST} times the other", where="image")
    sides, cells = (width, height), config.cell[::-1]
    new = [round(side / cell) * cell for side, cell in zip(sides, cells, strict=True)]
    if new[0] * new[1] > limits.most:
        shrink = sqrt(width * height / limits.most)
        new = [max(cell, floor(side / shrink / cell) * cell) for side, cell in zip(sides, cells, strict=True)]
    elif new[0] * new[1] < limits.fewest:
        grow = sqrt(limits.fewest / (width * height))
        new = [ceil(side * grow / cell) * cell for side, cell in zip(sides, cells, strict=True)]
    return ResizePlan(new[0], new[1], 0, 0)


def image_grid(plan: ResizePlan, config: ImagePreprocessing) -> PatchGrid:
    """Patches of the padded image; the padding's patches are ordinary ones."""
    return PatchGrid(
        1,
        (plan.height + plan.pad_height) // config.patch_size,
        (plan.width + plan.pad_width) // config.patch_size,
    )


def preprocess_image(image: Image.Image, config: ImagePreprocessing) -> ImageInput:
    """Resize, fill, pad, normalise and cut one image. EXIF rotation is not applied: pixels count as stored."""
    plan = plan_resize(*image.size, config)
    grid = image_grid(plan, config)
    size = image.size
    if config.fill_before_resize:
        image = opaque(image, config.background)
    # Pillow resizes RGBA with premultiplied alpha, and palette and 1-bit images by nearest neighbour.
    image = image.resize((plan.width, plan.height), Image.Resampling.BICUBIC)
    pixels = np.asarray(opaque(image, config.background))  # [height, width, 3] uint8
    padded = np.pad(pixels, ((0, plan.pad_height), (0, plan.pad_width), (0, 0)))
    return ImageInput(
        pixel_values=_patches(_normalised(padded, config), grid, config),
        grid=grid,
        num_tokens=grid.tokens(config.merge),
        size=size,
    )


def opaque(image: Image.Image, background: Background) -> Image.Image:
    """The image as RGB, with `background` behind what is transparent (colour keys and palettes included)."""
    transparent = "A" in image.getbands() or "transparency" in image.info
    if background is None or not transparent:
        return image.convert("RGB")
    image = image.convert("RGBA")
    if background == "white":
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    pixels = np.asarray(image)
    # The publisher blends in float32 and truncates; either in another way changes single levels.
    alpha = pixels[..., 3:].astype(np.float32) / np.float32(255)
    board = chessboard(image.width, image.height, background)[..., None]
    blended = alpha * pixels[..., :3] + (1 - alpha) * board
    return Image.fromarray(blended.astype(np.uint8))


def chessboard(width: int, height: int, board: Chessboard) -> NDArray[np.uint8]:
    """Grey levels of a board that covers an image, [height, width]."""
    odd = (np.arange(height) // board.square)[:, None] + (np.arange(width) // board.square)[None, :]
    first, second = (board.white, board.gray) if board.white_first else (board.gray, board.white)
    return np.where(odd % 2 == 0, first, second).astype(np.uint8)


def _normalised(pixels: NDArray[np.uint8], config: ImagePreprocessing) -> NDArray[np.float32]:
    """(x / 255 - mean) / std by table, [height, width, 3] uint8 -> [3, height, width] float32."""
    levels = np.arange(256) / 255
    planes = [
        ((levels - mean) / std).astype(np.float32)[pixels[..., channel]]
        for channel, (mean, std) in enumerate(zip(config.mean, config.std, strict=True))
    ]
    return np.stack(planes)


def _patches(planes: NDArray[np.float32], grid: PatchGrid, config: ImagePreprocessing) -> torch.Tensor:
    """[3, height, width] -> [patches, 3, patch, patch], or [patches, 3, frames, patch, patch] of equal frames."""
    patch = config.patch_size
    cut = planes.reshape(3, grid.rows, patch, grid.columns, patch).transpose(1, 3, 0, 2, 4)
    patches = torch.from_numpy(np.ascontiguousarray(cut).reshape(grid.patches, 3, patch, patch))
    return patches if config.frames == 1 else patches.unsqueeze(2).expand(-1, -1, config.frames, -1, -1)
