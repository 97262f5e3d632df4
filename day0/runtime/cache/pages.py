"""Bookkeeping of cache pages in plain Python: which are free, and where a sequence's tokens lie."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np


def pages_for(tokens: int, page_size: int) -> int:
    """How many pages hold this many tokens."""
    return -(-tokens // page_size)


class PageAllocator:
    """Hands out page numbers 0 .. num_pages - 1, the longest free one first."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self._free = deque(range(num_pages))
        self._taken: set[int] = set()

    @property
    def num_free(self) -> int:
        return len(self._free)

    def pages_for(self, tokens: int) -> int:
        return pages_for(tokens, self.page_size)

    def can_grow(self, pages: Sequence[int], tokens: int) -> bool:
        """Whether a sequence that holds `pages` can be given room for `tokens` tokens in all."""
        return self.pages_for(tokens) - len(pages) <= len(self._free)

    def grow(self, pages: list[int], tokens: int) -> None:
        """Add pages to `pages` until they hold `tokens` tokens."""
        missing = self.pages_for(tokens) - len(pages)
        assert missing <= len(self._free), "grow without can_grow"
        for _ in range(missing):
            page = self._free.popleft()
            self._taken.add(page)
            pages.append(page)

    def release(self, pages: list[int]) -> None:
        """Take back all of a sequence's pages; the list is emptied, so that they cannot be given back twice."""
        for page in pages:
            self._taken.remove(page)  # KeyError: freed twice or never taken
            self._free.append(page)
        pages.clear()

    def slots(self, pages: Sequence[int], start: int, end: int) -> np.ndarray:
        """Flat cache slots of a sequence's tokens start .. end - 1, int64."""
        size = self.page_size
        first = start // size
        held = np.asarray(pages[first : self.pages_for(end)], dtype=np.int64)
        slots = (held[:, None] * size + np.arange(size)).reshape(-1)
        return slots[start - first * size : end - first * size]
