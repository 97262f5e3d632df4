"""What every block of a layer is handed in a step: the batch, the cache and where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from day0.profile.profile import RopeSpec
from day0.runtime.batch import ForwardBatch
from day0.runtime.cache.storage import CacheStorage

Choice = torch.Tensor | None
"""What each query of a group reads, -1 for none; None for all. Tokens [sequences, length, chosen] int64, or of
block-sparse attention blocks by index head, [sequences, length, heads, chosen]."""


@dataclass(slots=True)
class Carried:
    """What a layer leaves for later ones of the same forward; nothing of it outlives the forward."""

    choices: tuple[Choice, ...] = ()  # by group: what the last indexer chose
    layer_inputs: torch.Tensor | None = None  # [tokens, layers, width]: what each layer has for itself


@dataclass(frozen=True, slots=True)
class LayerContext:
    """One layer's view of a step. Trace names are relative to the layer.

    `rotations` holds cos and sin [tokens, rope_dim / 2] of the step's positions for every rotary spec of the model.
    """

    index: int
    batch: ForwardBatch
    cache: CacheStorage
    rotations: Mapping[RopeSpec, tuple[torch.Tensor, torch.Tensor]]
    carried: Carried = field(default_factory=Carried)

    def save(self, name: str, tensor: torch.Tensor) -> None:
        if self.batch.trace is not None:
            self.batch.trace.save(f"layers.{self.index}.{name}", tensor)

    def passed(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Save `tensor`; gives what the forward goes on from, which a trace may have taken from another run."""
        trace = self.batch.trace
        return tensor if trace is None else trace.passed(f"layers.{self.index}.{name}", tensor)

    def replacement(self, name: str, like: torch.Tensor) -> torch.Tensor | None:
        """What a trace puts in the place of this tensor; mostly None."""
        trace = self.batch.trace
        return None if trace is None else trace.replacement(f"layers.{self.index}.{name}", like)

    def wants(self, name: str) -> bool:
        """Whether a value that only a trace needs is worth computing."""
        return self.batch.trace is not None and self.batch.trace.wants(f"layers.{self.index}.{name}")

    def write(self, plane: str, rows: torch.Tensor) -> torch.Tensor:
        """Put this step's rows into the layer's cache plane; gives the whole plane."""
        cache = self.cache.plane(self.index, plane)
        cache.index_copy_(0, self.batch.write_slots, rows.to(cache.dtype))
        return cache
