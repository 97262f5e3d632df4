"""Experts kept as numbers under a budget of bytes: the ones used last, whatever their layer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

import torch

Key = tuple[str, int]
"""A layer's experts by their path, and the number of one."""

Matrices = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class HotStats:
    """Counts since the start, and how many experts are kept of how many there is room for."""

    hits: int
    misses: int
    evictions: int
    kept: int
    room: int


class HotExperts:
    """Least recently used out first. Slots are of one size, that of the largest expert, and taken once."""

    def __init__(self, budget: int, dtype: torch.dtype, device: torch.device) -> None:
        self.budget = budget  # bytes; counts when memory is taken
        self._dtype = dtype
        self._device = device
        self._size = 0  # numbers of the largest expert
        self._total = 0  # experts of the whole model
        self._slots = torch.empty(0, 0, dtype=dtype, device=device)
        self._kept: OrderedDict[Key, tuple[int, Matrices]] = OrderedDict()
        self._hits = self._misses = self._evictions = 0

    @property
    def nbytes(self) -> int:
        return self._slots.nbytes

    @property
    def stats(self) -> HotStats:
        return HotStats(self._hits, self._misses, self._evictions, len(self._kept), len(self._slots))

    def reserve(self, numbers: int, experts: int) -> None:
        """A layer has so many experts of so many numbers each."""
        self._size = max(self._size, numbers)
        self._total += experts

    def allocate(self) -> None:
        """Take the memory: as many slots as the budget pays for, and no more than there are experts."""
        each = self._size * self._dtype.itemsize
        count = min(self.budget // each, self._total) if each else 0
        self._slots = torch.empty(count, self._size, dtype=self._dtype, device=self._device)
        self._kept.clear()

    def get(self, key: Key) -> Matrices | None:
        """An expert's matrices, where they are kept."""
        found = self._kept.get(key)
        if found is None:
            self._misses += 1
            return None
        self._hits += 1
        self._kept.move_to_end(key)
        return found[1]

    def holds(self, key: Key) -> bool:
        return key in self._kept

    def put(self, key: Key, matrices: Matrices, spared: Collection[Key]) -> None:
        """Keep a copy in a free slot, or in that of the one longest unused that is not among `spared`; else do not."""
        slot = self._free_slot(spared)
        if slot is None:
            return
        start, copies = 0, []
        for matrix in matrices:
            copy = self._slots[slot, start : start + matrix.numel()].view(matrix.shape)
            copies.append(copy.copy_(matrix))
            start += matrix.numel()
        self._kept[key] = (slot, tuple(copies))

    def _free_slot(self, spared: Collection[Key]) -> int | None:
        if len(self._kept) < len(self._slots):
            return len(self._kept)  # slots fill in order, and an emptied one is taken at once
        victim = next((key for key in self._kept if key not in spared), None)
        if victim is None:
            return None
        self._evictions += 1
        return self._kept.pop(victim)[0]
