from __future__ import annotations

import pytest

from day0.errors import InputError
from day0.profile.profile import VisionSpec
from day0.runtime.vision.grid import PatchGrid, checked_grids


def test_frames_are_averaged_so_only_rows_and_columns_make_tokens() -> None:
    assert PatchGrid(3, 4, 6).patches == 72
    assert PatchGrid(3, 4, 6).tokens((2, 2)) == 6
    assert PatchGrid(1, 4, 6).tokens((2, 3)) == 4


def test_good_grids_come_back_as_records(spec: VisionSpec) -> None:
    assert checked_grids([[1, 2, 4], [4, 2, 2]], 24, spec) == (PatchGrid(1, 2, 4), PatchGrid(4, 2, 2))
    assert checked_grids([], 0, spec) == ()


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ((0, 2, 2), "empty side"),
        ((5, 2, 2), "5 frames, the tower knows positions for 4"),
        ((1, 3, 2), "3 x 2 patches do not divide into cells of 2 x 2"),
        ((1, 2, 5), "2 x 5 patches do not divide"),
    ],
)
def test_a_grid_the_tower_cannot_take_is_named(spec: VisionSpec, grid: tuple[int, int, int], message: str) -> None:
    good = (1, 2, 2)
    with pytest.raises(InputError, match=message) as caught:
        checked_grids([good, grid], 4 + grid[0] * grid[1] * grid[2], spec)
    assert caught.value.where == "grid 1"


def test_grids_and_patches_must_agree(spec: VisionSpec) -> None:
    with pytest.raises(InputError, match="describe 8 patches, pixel_values holds 9"):
        checked_grids([(1, 2, 4)], 9, spec)
