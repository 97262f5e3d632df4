"""A tensor by our path, before its checkpoint name is known."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class Draft:
    """A tensor by our path, before its checkpoint name is known; fields mean what they mean in `TensorSpec`.

    `parameters` None means every element is one. `dtype` "" is the checkpoint's main dtype. `parts` are paths without
    the leaf, relative as `path` is.
    """

    path: str
    shape: tuple[int, ...]
    group: str
    shard_axis: int | None = None
    shard_units: int = 1
    parameters: int | None = None
    dtype: str = ""
    experts: int = 0
    keep_float32: bool = False
    zero_tail: bool = False
    stacked: int = 0
    input_first: bool = False
    parts: tuple[tuple[str, int], ...] = ()
    by_turns: int = 0

    @property
    def num_parameters(self) -> int:
        return prod(self.shape) if self.parameters is None else self.parameters
