"""Bookkeeping of cache pages in plain Python: which are free, who holds the others, and what they are known to hold."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence

import numpy as np

PageName = bytes
"""Says what a page holds: see `prefix.PageNames`."""


def pages_for(tokens: int, page_size: int) -> int:
    """How many pages hold this many tokens."""
    return -(-tokens // page_size)


class PageAllocator:
    """Lends page numbers 0 .. num_pages - 1, the longest free one first. Several may hold a page; then it is only read.

    A page with a name stays as it is when its last holder lets go: idle, to be found by its name until the room is
    needed. Of idle pages, the one let go longest ago is lost first. `generations` counts, by page, how often its
    content was given up.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self.generations = [0] * num_pages
        self._free = deque(range(num_pages))
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._holders: dict[int, int] = {}
        self._names: dict[int, PageName] = {}
        self._named: dict[PageName, int] = {}

    @property
    def num_free(self) -> int:
        """Pages that can be lent: free and idle ones."""
        return len(self._free) + len(self._idle)

    @property
    def num_idle(self) -> int:
        return len(self._idle)

    def pages_for(self, tokens: int) -> int:
        return pages_for(tokens, self.page_size)

    def take(self, count: int) -> tuple[list[int], list[PageName]]:
        """Pages of one holder, and the names that were lost for them."""
        assert count <= self.num_free, f"{count} pages wanted, {self.num_free} can be lent"
        pages, lost = [], []
        for _ in range(count):
            if not self._free:
                page, _nothing = self._idle.popitem(last=False)
                lost.append(self._names[page])
                self._give_up(page)
            pages.append(self._free.popleft())
        self._holders.update(dict.fromkeys(pages, 1))
        return pages, lost

    def hold(self, pages: Iterable[int]) -> None:
        """One more holder of pages that are held or idle."""
        for page in pages:
            self._idle.pop(page, None)
            self._holders[page] = self._holders.get(page, 0) + 1

    def release(self, pages: Sequence[int]) -> list[int]:
        """One holder lets go; gives the pages whose content is given up, which nobody holds and nothing names."""
        given_up = []
        for page in reversed(pages):  # a sequence's later pages are of no use without the earlier ones: lost first
            self._holders[page] -= 1  # KeyError: let go twice or never held
            if self._holders[page]:
                continue
            del self._holders[page]
            if page in self._names:
                self._idle[page] = None
            else:
                self._give_up(page)
                given_up.append(page)
        return given_up

    def find(self, name: PageName) -> int | None:
        """The page of this name, held or idle."""
        return self._named.get(name)

    def is_idle(self, page: int) -> bool:
        return page in self._idle

    def name(self, page: int, name: PageName) -> None:
        """Say what a held page holds from now on. Where another page holds the same, that one keeps the name."""
        assert page in self._holders and page not in self._names, f"page {page} is not held or has a name"
        if name not in self._named:
            self._named[name], self._names[page] = page, name

    def forget(self, pages: Iterable[int]) -> list[PageName]:
        """Take the names of held pages away: what they hold is not to be found again."""
        return [self._unname(page) for page in pages if page in self._names]

    def _give_up(self, page: int) -> None:
        if page in self._names:
            self._unname(page)
        self.generations[page] += 1
        self._free.append(page)

    def _unname(self, page: int) -> PageName:
        name = self._names.pop(page)
        del self._named[name]
        return name


def token_slots(pages: Sequence[int], page_size: int) -> np.ndarray:
    """Flat cache slots of all tokens that pages hold, in order; int64."""
    return (np.asarray(pages, dtype=np.int64)[:, None] * page_size + np.arange(page_size)).reshape(-1)
