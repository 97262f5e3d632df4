"""Where the tokens of a sequence stand: text on a line, the tokens of an image in rows and columns beside it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from day0.runtime.batch import ImageSpan

AXES = 3
"""Time, height, width."""


class Positions:
    """Positions of one sequence's tokens, on one axis or on three (Qwen2-VL, arXiv 2409.12191).

    On three axes text advances along all of them together. An image that begins at p has time p, and heights and
    widths from p on by its rows and columns; what follows it goes on behind its longer side. Tokens that are generated
    go on likewise.
    """

    def __init__(self, images: Sequence[ImageSpan] = ()) -> None:
        self._images = sorted((image for image in images if image.grid is not None), key=lambda image: image.start)

    @property
    def lie_on_a_line(self) -> bool:
        """Whether every axis has the same positions: the tokens' numbers."""
        return not self._images

    def on_axes(self, start: int, end: int) -> NDArray[np.int64]:
        """Positions of tokens start .. end, [3, end - start] int64."""
        found = np.tile(np.arange(start, end, dtype=np.int64), (AXES, 1))
        shift = 0  # of text, less than its number by what the images before it saved
        for image in self._images:
            assert image.grid is not None
            rows, columns = image.grid
            first, last = image.bounds
            begun = first + shift
            low, high = max(first, start), min(last, end)
            if low < high:
                cells = np.arange(low, high) - first
                places = (np.zeros_like(cells), cells // columns, cells % columns)
                found[:, low - start : high - start] = begun + np.stack(places)
            shift = begun + max(rows, columns) - last
            found[:, max(last - start, 0) :] = np.arange(max(last, start), max(end, last)) + shift
        return found
