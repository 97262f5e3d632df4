"""How many patches an image or clip has: its grid, and what a tower asks of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from day0.errors import InputError
from day0.profile.profile import VisionSpec, VisionTower


class PatchGrid(NamedTuple):
    """Patches of one item, (t, h, w) in the publisher's words; an image has one frame."""

    frames: int
    rows: int
    columns: int

    @property
    def patches(self) -> int:
        return self.frames * self.rows * self.columns

    def tokens(self, merge: tuple[int, int]) -> int:
        """Tokens in the prompt: frames are averaged and `merge` (rows, columns) patches joined."""
        rows, columns = self.cells(merge)
        return rows * columns

    def cells(self, merge: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of those tokens."""
        return self.rows // merge[0], self.columns // merge[1]


def checked_grids(
    grids: Sequence[Sequence[int]], num_patches: int, spec: VisionSpec | VisionTower
) -> tuple[PatchGrid, ...]:
    """The items of one batch; InputError where the tower cannot take one, or where they do not add up."""
    items = tuple(PatchGrid(*(int(size) for size in grid)) for grid in grids)
    for index, item in enumerate(items):
        where = f"grid {index}"
        if min(item) < 1:
            raise InputError(f"{tuple(item)} has an empty side", where=where)
        if item.frames > spec.position_frames:
            raise InputError(
                f"{item.frames} frames, the tower knows positions for {spec.position_frames}",
                where=where,
                hint="split the clip into shorter ones",
            )
        if item.rows % spec.merge[0] or item.columns % spec.merge[1]:
            raise InputError(
                f"{item.rows} x {item.columns} patches do not divide into cells of {spec.merge[0]} x {spec.merge[1]}",
                where=where,
                hint="pad the image as the preprocessing does",
            )
    expected = sum(item.patches for item in items)
    if expected != num_patches:
        raise InputError(
            f"the grids describe {expected} patches, pixel_values holds {num_patches}", where="pixel_values"
        )
    return items
