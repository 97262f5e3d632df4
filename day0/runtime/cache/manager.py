"""Pages, state slots and their tensors under one roof: what a sequence holds is taken and given back here."""

from __future__ import annotations

from day0.runtime.cache.pages import PageAllocator
from day0.runtime.cache.states import SlotAllocator
from day0.runtime.cache.storage import CacheStorage


class CacheManager:
    """Lends pages and a state slot to each sequence. With `debug`, what is given back is filled with NaN."""

    def __init__(self, storage: CacheStorage, pages: PageAllocator, slots: SlotAllocator, debug: bool = False) -> None:
        self.storage = storage
        self.pages = pages
        self.slots = slots
        self.debug = debug

    @property
    def capacity(self) -> int:
        """Tokens that all pages together hold."""
        return self.pages.num_pages * self.pages.page_size

    def can_open(self, tokens: int) -> bool:
        """Whether a new sequence can have a state slot and room for `tokens` tokens."""
        has_slot = self.slots.num_slots == 0 or self.slots.num_free > 0
        return has_slot and self.pages.can_grow((), tokens)

    def open(self) -> int:
        """A state slot for a new sequence, its state zeroed."""
        slot = self.slots.take()
        if slot != -1:
            self.storage.reset_state(slot)
        return slot

    def close(self, pages: list[int], slot: int) -> None:
        """Take back everything a sequence holds; `pages` is emptied."""
        if self.debug:
            self.storage.poison_pages(pages)
            if slot != -1:
                self.storage.poison_state(slot)
        self.pages.release(pages)
        self.slots.release(slot)
