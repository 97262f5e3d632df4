"""Bookkeeping of state slots: one per running sequence, for mixers whose memory does not grow."""

from __future__ import annotations

NO_SLOT = -1
"""The slot of a sequence whose model keeps no state."""


class SlotAllocator:
    """Hands out slot numbers 0 .. num_slots - 1. Models without recurrent state have none and need none.

    `generations` counts, by slot, how often it was given back.
    """

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self.generations = [0] * num_slots
        self._free = list(range(num_slots - 1, -1, -1))
        self._taken: set[int] = set()

    @property
    def num_free(self) -> int:
        return len(self._free)

    def take(self) -> int:
        """A free slot, NO_SLOT where the model keeps no state."""
        if self.num_slots == 0:
            return NO_SLOT
        slot = self._free.pop()
        self._taken.add(slot)
        return slot

    def release(self, slot: int) -> None:
        if slot == NO_SLOT:
            return
        self._taken.remove(slot)  # KeyError: freed twice or never taken
        self.generations[slot] += 1
        self._free.append(slot)
