"""What a layer keeps between steps: planes of the paged cache, and states per sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class CachePlane:
    """What one layer keeps per token in the paged cache: `shape` elements, e.g. (kv_heads, head_dim).

    `head_axis` is the axis that tensor parallelism may cut, None where every rank holds all of it (latents).
    `window` is the number of last tokens that can still be read, None for all. `stride` tokens share one entry
    (compressed attention). `index` marks an indexer's keys, which say where to look and are not attended to.
    `tail` is what must be kept of the last tokens to make the next entry, per sequence: (tokens, channels), those
    before the token that completes it. It is working state of the layer, not counted by `cache_sizes`.
    """

    name: str
    shape: tuple[int, ...]
    head_axis: int | None = None
    window: int | None = None
    stride: int = 1
    index: bool = False
    tail: StateShape | None = None

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True, slots=True)
class StateShape:
    """What one layer keeps per sequence whatever its length. `dtype` is "float32" or "model" (the model's own)."""

    name: str
    shape: tuple[int, ...]
    dtype: Literal["float32", "model"]
    head_axis: int | None = 0

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count
