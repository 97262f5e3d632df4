from __future__ import annotations

import torch

from day0.profile.profile import VisionSpec
from day0.runtime.vision.grid import PatchGrid
from day0.runtime.vision.projector import PatchMerger, merge_patches


def test_cells_and_the_patches_in_one_go_by_rows() -> None:
    numbers = torch.arange(24.0).view(24, 1)  # 4 rows of 6 patches
    cells = merge_patches(numbers, [PatchGrid(1, 4, 6)], (2, 2))[..., 0]
    assert cells.tolist() == [
        [0, 1, 6, 7],
        [2, 3, 8, 9],
        [4, 5, 10, 11],
        [12, 13, 18, 19],
        [14, 15, 20, 21],
        [16, 17, 22, 23],
    ]


def test_a_cell_need_not_be_square() -> None:
    numbers = torch.arange(6.0).view(6, 1)
    assert merge_patches(numbers, [PatchGrid(1, 2, 3)], (1, 3))[..., 0].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_frames_are_averaged_and_items_kept_apart() -> None:
    clip = torch.tensor([0.0, 2.0, 4.0]).repeat_interleave(4).view(12, 1)
    image = torch.full((4, 1), 7.0)
    cells = merge_patches(torch.cat([clip, image]), [PatchGrid(3, 2, 2), PatchGrid(1, 2, 2)], (2, 2))
    assert cells[..., 0].tolist() == [[2.0] * 4, [7.0] * 4]


def test_projector_joins_in_order_and_normalises_last(spec: VisionSpec) -> None:
    merger = PatchMerger(spec)
    with torch.no_grad():
        merger.up.weight.copy_(torch.eye(80))
        merger.down.weight.zero_()
        merger.down.weight[:, 20] = torch.arange(1.0, 13.0)  # reads the first channel of the second patch
        merger.norm.weight.fill_(2.0)
        cells = torch.zeros(1, 4, 20)
        cells[0, 1, 0] = 1.0
        projected = merger(cells)[0]
    row = 0.8413447460685429 * torch.arange(1.0, 13.0)  # erf GELU of 1; the tanh form gives 0.84119
    assert torch.allclose(projected, 2 * row / (row.square().mean() + 1e-5).sqrt(), atol=1e-6)
