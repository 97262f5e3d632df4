"""A checkpoint of true headers without weights: safetensors files whose data are holes in sparse files, and the index.

Laid out as the format's reference writer does it: within a file wide dtypes first, then by name, data aligned to eight
bytes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path

import msgspec

from day0.errors import EnvironmentFault
from day0.source.model_files import DTYPE_BITS
from day0.source.safetensors_header import PREFIX_BYTES
from day0.source.shards import INDEX_NAME, SINGLE_NAME, shard_names

SHARD_BYTES = 5_000_000_000
"""About what a shard holds where nothing says how many there are: the usual size on the hub."""

_ALIGNMENT = 8
_PROBE_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor to lay out, as a header describes it."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * DTYPE_BITS[self.dtype] // 8


def usual_shards(nbytes: int) -> int:
    """How many shards a checkpoint of that many bytes is usually cut into."""
    return max(1, ceil(nbytes / SHARD_BYTES))


def write_sparse_checkpoint(folder: Path, tensors: Sequence[StoredTensor], shards: int) -> int:
    """Write `shards` files and, for more than one, the index that joins them; gives how many there are.

    Raises EnvironmentFault where the file system would store the holes, or has no room for files of this size.
    """
    require_sparse_files(folder)
    groups = split_evenly(tensors, shards)
    names = shard_names(len(groups)) if len(groups) > 1 else (SINGLE_NAME,)
    weight_map: dict[str, str] = {}
    total = 0
    for file_name, group in zip(names, groups, strict=True):
        header, data_bytes = encode_header(group)
        _write_sparse(folder / file_name, header, data_bytes)
        weight_map.update((tensor.name, file_name) for tensor in group)
        total += data_bytes
    if len(groups) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        (folder / INDEX_NAME).write_bytes(msgspec.json.format(msgspec.json.encode(index), indent=2))
    return len(groups)


def split_evenly(tensors: Sequence[StoredTensor], shards: int) -> list[list[StoredTensor]]:
    """The tensors in their order, in `shards` runs of nearly equal bytes; fewer where there are fewer tensors."""
    shards = max(1, min(shards, len(tensors)))
    total = sum(tensor.nbytes for tensor in tensors)
    groups: list[list[StoredTensor]] = [[]]
    filled = 0
    for left, tensor in zip(range(len(tensors), 0, -1), tensors, strict=True):
        # Closed once its share is reached, and early where each of the next shards would get one tensor at most.
        share_reached = filled * shards >= total * len(groups)
        if groups[-1] and len(groups) < shards and (share_reached or left <= shards - len(groups)):
            groups.append([])
        groups[-1].append(tensor)
        filled += tensor.nbytes
    return groups


def encode_header(tensors: Sequence[StoredTensor]) -> tuple[bytes, int]:
    """The first bytes of a safetensors file (length and JSON) and how many bytes of data follow them."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for tensor in sorted(tensors, key=lambda tensor: (-DTYPE_BITS[tensor.dtype], tensor.name)):
        end = position + tensor.nbytes
        entries[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": (position, end)}
        position = end
    text = msgspec.json.encode(entries)
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(PREFIX_BYTES, "little") + text, position


def require_sparse_files(folder: Path) -> None:
    """Raise EnvironmentFault unless a hole in a file of this folder takes no room on the disk."""
    probe = folder / ".sparse"
    try:
        _write_sparse(probe, b"", _PROBE_BYTES)
        stored = disk_bytes(probe)
    finally:
        probe.unlink(missing_ok=True)
    if stored >= _PROBE_BYTES:
        raise EnvironmentFault(
            "this file system stores holes in full, so the files would take as much room as the weights",
            where=str(folder),
            hint="write to a file system with sparse files (ext4, XFS, Btrfs, APFS, tmpfs)",
        )


def disk_bytes(path: Path) -> int:
    """Bytes that a file takes on the disk (in units of 512, as POSIX counts)."""
    return path.stat().st_blocks * 512


def _write_sparse(path: Path, head: bytes, data_bytes: int) -> None:
    size = len(head) + data_bytes
    path.write_bytes(head)
    try:
        os.truncate(path, size)
        return
    except OverflowError:
        reason = "more than a file can have"
    except OSError as error:
        if error.errno not in (errno.EFBIG, errno.EINVAL, errno.ENOSPC):
            raise
        reason = error.strerror or str(error)
    raise EnvironmentFault(
        f"this file system takes no file of {size:,} bytes: {reason}",
        where=str(path.parent),
        hint="use more shards, or another file system",
    )
