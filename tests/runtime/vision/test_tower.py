from __future__ import annotations

import torch

from day0.runtime.vision.grid import PatchGrid
from day0.runtime.vision.model import VisionModel


def test_a_change_in_one_item_leaves_the_others(model: VisionModel, pixels_for) -> None:
    items = [PatchGrid(1, 2, 4), PatchGrid(3, 2, 2), PatchGrid(1, 4, 2)]
    pixels = pixels_for(items)
    changed = pixels.clone()
    changed[8:20] += 1.0
    before, after = model.tower(pixels, items), model.tower(changed, items)
    assert torch.equal(before[:8], after[:8])
    assert torch.equal(before[20:], after[20:])
    assert (before[8:20] - after[8:20]).abs().min(dim=1).values.max() > 0


def test_every_frame_of_a_clip_sees_every_other(model: VisionModel, pixels_for) -> None:
    items = [PatchGrid(3, 2, 2)]
    pixels = pixels_for(items)
    changed = pixels.clone()
    changed[-1] += 1.0
    moved = (model.tower(pixels, items) - model.tower(changed, items)).abs().amax(dim=1)
    assert (moved > 0).all()


def test_patches_are_not_a_bag(model: VisionModel, pixels_for) -> None:
    """Transposing rows and columns of the same patches is another picture."""
    items = [PatchGrid(1, 4, 4)]
    pixels = pixels_for(items)
    transposed = pixels.view(4, 4, 3, 14, 14).transpose(0, 1).reshape(16, 3, 14, 14)
    straight = model.tower(pixels, items).view(4, 4, -1)
    swapped = model.tower(transposed, items).view(4, 4, -1).transpose(0, 1)
    assert (straight - swapped).abs().max() > 0.1


def test_a_clip_of_equal_frames_differs_from_the_image_by_its_time(model: VisionModel, pixels_for) -> None:
    still = pixels_for([(1, 2, 2)])
    image = model.tower(still, [PatchGrid(1, 2, 2)])
    clip = model.tower(still.repeat(2, 1, 1, 1), [PatchGrid(2, 2, 2)])
    assert (clip[:4] - image).abs().max() > 0.1
    assert (clip[:4] - clip[4:]).abs().max() > 0.1
