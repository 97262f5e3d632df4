"""A few stored numbers of a local checkpoint, where headers alone cannot tell two cases apart."""

from __future__ import annotations

import array
import sys
from pathlib import Path

from day0.source.model_files import TensorHeader

_PIECE = 1 << 16
_PIECES = 5
_MAX_VALUES = 1 << 14


def same_bytes(folder: Path, one: TensorHeader, other: TensorHeader) -> bool | None:
    """Whether two tensors hold the same bytes in a few pieces spread over them; None where they cannot be compared."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return None
    size = one.nbytes
    starts = sorted({max(0, (size - _PIECE) * piece // (_PIECES - 1)) for piece in range(_PIECES)})
    try:
        with (folder / one.shard).open("rb") as first, (folder / other.shard).open("rb") as second:
            for start in starts:
                length = min(_PIECE, size - start)
                first.seek(one.begin + start)
                second.seek(other.begin + start)
                if first.read(length) != second.read(length):
                    return False
    except OSError:
        return None
    return True


def first_values(folder: Path, header: TensorHeader) -> tuple[float, ...] | None:
    """The first numbers of a BF16 or F32 tensor, None for other dtypes or a file that cannot be read."""
    width = {"BF16": 2, "F32": 4}.get(header.dtype)
    if width is None:
        return None
    count = min(header.nbytes // width, _MAX_VALUES)
    try:
        with (folder / header.shard).open("rb") as file:
            file.seek(header.begin)
            data = file.read(count * width)
    except OSError:
        return None
    if width == 2:  # the upper half of a float32
        data = b"".join(b"\0\0" + data[place : place + 2] for place in range(0, len(data), 2))
    values = array.array("f", data)
    if sys.byteorder == "big":
        values.byteswap()
    return tuple(values)
