"""A rank's share of a stored tensor out of an open safetensors file, without reading the rest."""

from __future__ import annotations

from typing import Any

import torch

from day0.errors import InputError
from day0.runtime.parallel.shares import Share

WHOLE = Share()
"""All of a tensor."""


def take(share: Share, file: Any, name: str, where: str) -> torch.Tensor:
    """What `share` says of the tensor `name` in a file opened by `safe_open`; zeros where it does not count here.

    Raises InputError where the stored axis is not as long as the share takes it to be.
    """
    if share.pieces is None and share.stack is None and share.counts:
        return file.get_tensor(name)
    whole = file.get_slice(name)
    shape = whole.get_shape()
    index: list[slice] = [slice(None)] * len(shape)
    if share.stack is not None:
        index[0] = slice(share.stack.start, share.stack.stop)
    if share.pieces is None:
        found = whole[tuple(index)]
        return found if share.counts else torch.zeros_like(found)
    if shape[share.axis : share.axis + 1] != [share.length] and not (
        share.padded and shape[share.axis] >= share.length
    ):
        raise InputError(f"has shape {shape}, the config asks for {share.length} along axis {share.axis}", where=where)
    parts = []
    for piece in share.pieces:
        index[share.axis] = slice(piece.start, piece.stop)
        parts.append(whole[tuple(index)])
    return parts[0] if len(parts) == 1 else _joined(parts, share.axis)


def cut_out(share: Share, stored: torch.Tensor) -> torch.Tensor:
    """The same out of a tensor that has been read."""
    if share.stack is not None:
        stored = stored[share.stack.start : share.stack.stop]
    if share.pieces is None:
        return stored if share.counts else torch.zeros_like(stored)
    return _joined([stored.narrow(share.axis, piece.start, len(piece)) for piece in share.pieces], share.axis)


def _joined(found: list[torch.Tensor], axis: int) -> torch.Tensor:
    """One after another, as bytes where they are: joining knows no 8-bit floats on every device."""
    if found[0].element_size() == 1:
        return torch.cat([piece.view(torch.uint8) for piece in found], dim=axis).view(found[0].dtype)
    return torch.cat(found, dim=axis)
