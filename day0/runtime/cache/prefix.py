"""Prefixes that were computed before: how pages are named by what they hold, and states kept at their ends."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from day0.runtime.cache.pages import PageName
from day0.runtime.cache.storage import StateSnapshot


@dataclass(frozen=True, slots=True)
class ImageContent:
    """Which tokens of a prompt an image stands in for, and a digest of what it puts there."""

    start: int
    end: int
    digest: bytes


class PageNames:
    """Names of one sequence's full pages. A name is a digest of the page's tokens and images and of the name before.

    So equal names mean equal tokens from the sequence's beginning on (SHA-256: no two texts share one by chance or
    by design), and one look-up a page finds the longest prefix that is known. `eras` (RopeSpec.era) are part of a
    name: keys that turned by other frequencies are other keys.
    """

    def __init__(self, page_size: int, images: Sequence[ImageContent] = (), eras: tuple[int, ...] = ()) -> None:
        self._page_size = page_size
        self._images = images
        self._before_all = repr(eras).encode() if any(eras) else b""
        self._names: list[PageName] = []

    def in_eras(self, eras: tuple[int, ...]) -> PageNames:
        """Names of the same sequence's pages once it turns otherwise."""
        return PageNames(self._page_size, self._images, eras)

    def name(self, token_ids: Sequence[int], number: int) -> PageName:
        """The name of one page; `token_ids` goes on from what it was in earlier calls."""
        while number >= len(self._names):
            self._names.append(self._next(token_ids))
        return self._names[number]

    def _next(self, token_ids: Sequence[int]) -> PageName:
        start = len(self._names) * self._page_size
        end = start + self._page_size
        digest = hashlib.sha256(self._names[-1] if self._names else self._before_all)
        digest.update(np.asarray(token_ids[start:end], dtype=np.int64).tobytes())
        for image in self._images:
            if image.start < end and start < image.end:
                digest.update(image.digest + (image.start - start).to_bytes(8, signed=True))
        return digest.digest()


@dataclass(frozen=True, slots=True)
class Prefix:
    """How much of a sequence is in the cache already, and how to go on.

    `pages` hold the first `tokens` tokens and `snapshot` the states after them. A step should end at each of `stops`
    (tokens from the sequence's beginning), so that the states there can be kept for others.
    """

    pages: tuple[int, ...] = ()
    tokens: int = 0
    snapshot: StateSnapshot | None = None
    stops: tuple[int, ...] = ()


NOTHING_KNOWN = Prefix()


class Snapshots:
    """States at the ends of named pages, within a budget of bytes; the one used longest ago is dropped first."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.nbytes = 0
        self._kept: OrderedDict[PageName, StateSnapshot] = OrderedDict()

    def __contains__(self, name: PageName) -> bool:
        return name in self._kept

    def get(self, name: PageName) -> StateSnapshot:
        self._kept.move_to_end(name)
        return self._kept[name]

    def put(self, name: PageName, snapshot: StateSnapshot) -> None:
        """Keep a snapshot, dropping others for it; one beyond the whole budget is not kept."""
        self.drop(name)
        if snapshot.nbytes > self.budget:
            return
        self._kept[name] = snapshot
        self.nbytes += snapshot.nbytes
        while self.nbytes > self.budget:
            self.drop(next(iter(self._kept)))

    def drop(self, name: PageName) -> None:
        """Forget the states after this page, if they are kept."""
        dropped = self._kept.pop(name, None)
        if dropped is not None:
            self.nbytes -= dropped.nbytes
