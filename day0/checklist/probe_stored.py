"""Stored tensors, read from the files a second time, to hold what a runtime has against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import torch
from safetensors import safe_open

from day0.source.model_files import ModelFiles

_Item = TypeVar("_Item")


def spread(items: Sequence[_Item], count: int) -> Iterator[_Item]:
    """At most `count` of the items, first and last among them, evenly spread."""
    if len(items) <= count:
        yield from items
        return
    for step in range(count):
        yield items[round(step * (len(items) - 1) / max(1, count - 1))]


def stored_tensor(files: ModelFiles, name: str) -> torch.Tensor:
    """A tensor by its checkpoint name."""
    assert files.folder is not None and files.tensors is not None
    with safe_open(files.folder / files.tensors[name].shard, framework="pt") as shard:
        found: torch.Tensor = shard.get_tensor(name)
        return found


def same_values(held: torch.Tensor, stored: torch.Tensor) -> bool:
    """Equal after the one rounding to the held dtype; a stored first axis may be longer (zero tail)."""
    live = stored[: held.shape[0]] if stored.dim() else stored
    return live.shape == held.shape and bool(torch.equal(live.to(held.dtype), held.cpu()))
