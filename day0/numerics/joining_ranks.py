"""Tensors of several ranks, put together again; and what each rank had, to tell which of them is wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from day0.errors import InputError
from day0.numerics.recording import Entry, step_key

Load = Callable[[str], Tensor]


@dataclass(frozen=True, slots=True)
class Joined:
    """A trace of several ranks as one would have written it.

    `alone` has, for each rank, how to load a tensor with that rank's own numbers wherever it has some; `held` the
    entries of the ranks by the key of the joined one.
    """

    entries: tuple[Entry, ...]
    load: Load
    alone: Mapping[int, Load]
    held: Mapping[str, tuple[Entry, ...]]


def join_ranks(entries: Sequence[Entry], load: Load, where: str) -> Joined | None:
    """Put together what several ranks had; None where the trace is of one.

    Raises InputError where the pieces of a tensor leave a gap.
    """
    if not any(entry.rank or entry.copy or entry.shard_axis is not None for entry in entries):
        return None
    held: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        held[step_key(entry.name, entry.step)].append(entry)
    joined = tuple(replace(_joined(parts, where), order=order) for order, parts in enumerate(held.values()))

    def loader(rank: int | None) -> Load:
        return lambda key: _whole(held[key], load, rank)

    ranks = sorted({entry.rank for entry in entries})
    views = {rank: loader(rank) for rank in ranks}
    return Joined(joined, loader(None), views, {key: tuple(parts) for key, parts in held.items()})


def _joined(parts: Sequence[Entry], where: str) -> Entry:
    """The entry of the whole; where only one rank has it, or all alike, that rank's own."""
    first = parts[0]
    if first.shard_axis is None:
        return first
    shape = list(first.shape)
    if isinstance(first.shard_axis, int):
        shape[first.shard_axis] = _length(parts, where)
    kept = {part.kept for part in parts}
    whole = kept.pop() if len(kept) == 1 else "nothing"
    strides = torch.empty(shape, device="meta").stride()
    return replace(
        first, rank=0, shard_axis=None, pieces=(), shape=tuple(shape), strides=strides, statistics=None, kept=whole
    )


def _length(parts: Sequence[Entry], where: str) -> int:
    """The length of the whole along the axis that is shared out."""
    end = 0
    for start, length in sorted(piece for part in parts for piece in part.pieces):
        if start > end:
            axis = parts[0].shard_axis
            raise InputError(f"{parts[0].name}: no rank has {end} to {start} of axis {axis}", where=where)
        end = max(end, start + length)
    return end


def _whole(parts: Sequence[Entry], load: Load, rank: int | None) -> Tensor:
    """The whole, with one rank's own numbers wherever it has some; else those of the first that has them."""
    axis = parts[0].shard_axis
    if axis is None:
        own = next((part for part in parts if part.rank == rank and part.kept != "nothing"), parts[0])
        return load(own.key)
    loaded = [(part, load(part.key)) for part in parts]
    if axis == "sum":
        return torch.stack([tensor.float() for _, tensor in loaded]).sum(0).to(loaded[0][1].dtype)
    shape = list(loaded[0][1].shape)
    shape[axis] = max(start + length for part in parts for start, length in part.pieces)
    whole = loaded[0][1].new_empty(shape)
    for part, tensor in sorted(loaded, key=lambda item: (item[0].rank == rank, -item[0].rank)):
        for (start, length), piece in zip(part.pieces, _cut(tensor, part, axis), strict=True):
            whole.narrow(axis, start, length).copy_(piece)
    return whole


def _cut(tensor: Tensor, part: Entry, axis: int) -> Sequence[Tensor]:
    return tensor.split([length for _, length in part.pieces], dim=axis)


def ranks_differ(held: Sequence[Entry]) -> bool:
    """Whether two ranks have other numbers where they ought to have the same."""
    hashes: dict[object, str] = {}
    for part in held:
        sha256 = None if part.statistics is None or part.shard_axis == "sum" else part.statistics.sha256
        if sha256 is not None and hashes.setdefault((part.step, part.pieces), sha256) != sha256:
            return True
    return False


def shares(held: Sequence[Entry]) -> dict[int, Callable[[Tensor], Tensor]]:
    """By rank that has something of its own to answer for, how its part is taken out of a whole.

    A term of a sum is nobody's alone: there are none then.
    """
    return {part.rank: partial(_own_part, part) for part in held if part.shard_axis != "sum"}


def _own_part(part: Entry, whole: Tensor) -> Tensor:
    axis = part.shard_axis
    if not isinstance(axis, int):
        return whole
    return torch.cat([whole.narrow(axis, start, length) for start, length in part.pieces], dim=axis)
