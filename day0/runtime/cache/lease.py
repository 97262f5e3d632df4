"""What one sequence holds of the cache while it runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from day0.runtime.cache.pages import token_slots
from day0.runtime.cache.states import NO_SLOT


class StaleLease(RuntimeError):
    """Pages or a state slot are used by a sequence that they no longer belong to: a defect of the engine."""


class Lease:
    """Pages in order, the slots of their tokens, and a state slot; made and ended by `CacheManager`.

    An ended lease holds nothing and raises StaleLease when it is asked. `generations` and `slot_generation` are those
    of the time of lending: whoever kept a lease by a detour is found out by them (`CacheManager.check`). The first
    `named` pages can be found by others, so they are never written again.
    """

    def __init__(self, page_size: int, state_slot: int, slot_generation: int) -> None:
        self.page_size = page_size
        self.pages: list[int] = []
        self.generations: list[int] = []
        self.named = 0
        self.slot_generation = slot_generation
        self._state_slot = state_slot
        self._ended = False
        self._slots = np.empty(0, dtype=np.int64)

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def state_slot(self) -> int:
        self.require()
        return self._state_slot

    @property
    def capacity(self) -> int:
        """Tokens that the pages hold."""
        return len(self.pages) * self.page_size

    def add(self, pages: Sequence[int], generations: Sequence[int]) -> None:
        """More pages at the end."""
        self.require()
        start, end = self.capacity, self.capacity + len(pages) * self.page_size
        if end > len(self._slots):
            grown = np.empty(max(end, 2 * len(self._slots)), dtype=np.int64)
            grown[:start] = self._slots[:start]
            self._slots = grown
        self._slots[start:end] = token_slots(pages, self.page_size)
        self.pages += pages
        self.generations += generations

    def slots(self, start: int, end: int) -> np.ndarray:
        """Flat cache slots of the sequence's tokens start .. end - 1, int64; a view, not to be written."""
        self.require()
        assert end <= self.capacity, f"{end} tokens on pages for {self.capacity}"
        return self._slots[start:end]

    def end(self) -> tuple[list[int], int]:
        """Let go of everything: the pages and the state slot, for whoever takes them back."""
        self.require()
        pages, slot = self.pages, self._state_slot
        self.pages, self.generations, self._state_slot, self._ended = [], [], NO_SLOT, True
        return pages, slot

    def require(self) -> None:
        """Raise StaleLease if the lease has ended."""
        if self._ended:
            raise StaleLease("the lease has ended: what it held may be another sequence's")
