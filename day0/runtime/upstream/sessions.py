"""What sequences keep between steps where transformers holds it: a cache object per sequence, by state slot."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import torch

from day0.runtime.cache.lease import Lease
from day0.runtime.cache.manager import CacheManager
from day0.runtime.cache.pages import PageAllocator
from day0.runtime.cache.states import SlotAllocator
from day0.runtime.cache.storage import CacheStorage


@dataclass(slots=True)
class Session:
    """One sequence: its tokens so far, and transformers' cache of the first `cached` of them.

    `replaced` are embeddings [hidden] by position, for tokens that an image stands in for.
    """

    token_ids: list[int] = field(default_factory=list)
    replaced: dict[int, torch.Tensor] = field(default_factory=dict)
    cache: Any = None
    cached: int = 0

    @property
    def num_pending(self) -> int:
        return len(self.token_ids) - self.cached

    def start_over(self) -> None:
        """Drop the cache; the tokens stay."""
        self.cache, self.cached = None, 0


class CacheUse(StrEnum):
    """How far a definition's own cache can be relied on; a later member costs more and asks less of it."""

    CHUNKS = "chunks"
    """Tokens may come in any portions."""
    STEPS = "steps"
    """After the first portion only single tokens: a longer one starts over from the first token."""
    NEVER = "never"
    """Every step computes the whole sequence."""


@dataclass(frozen=True, slots=True)
class CacheCost:
    """Bytes that one more token adds to a sequence's cache, and what a sequence keeps whatever its length."""

    per_token: int
    per_sequence: int


class Sessions(CacheStorage):
    """A storage without planes: pages only count tokens, and a state slot is the name of a sequence's session."""

    def __init__(self, page_size: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__((), 0, page_size, 0, dtype, dtype, device)
        self._sessions: dict[int, Session] = {}

    def session(self, slot: int) -> Session:
        """The session of a slot in use."""
        return self._sessions[slot]

    def reset_state(self, slot: int) -> None:
        """Begin a sequence."""
        self._sessions[slot] = Session()

    @torch.inference_mode()  # the tensors were made in it
    def poison_state(self, slot: int) -> None:
        """Fill what a sequence kept with NaN, so that it shows if another one still reads it."""
        for tensor in cache_tensors(self._sessions[slot].cache):
            if tensor.is_floating_point():
                tensor.fill_(float("nan"))

    def copy_state(self, source: int, target: int) -> None:
        """Begin a sequence as a copy of another one."""
        self._sessions[target] = deepcopy(self._sessions[source])

    def forget(self, slot: int) -> None:
        """Let go of a sequence that has ended; its memory is free at once."""
        self._sessions.pop(slot, None)

    @property
    def bytes_held(self) -> int:
        """Bytes that the caches of all sequences hold now."""
        return sum(cache_bytes(session.cache) for session in self._sessions.values())


class SessionManager(CacheManager):
    """Lends pages, which count tokens against the budget, and sessions. Nothing is found again for another sequence."""

    def __init__(self, num_pages: int, sessions: Sessions, num_sessions: int, debug: bool) -> None:
        pages, slots = PageAllocator(num_pages, sessions.page_size), SlotAllocator(num_sessions)
        super().__init__(sessions, pages, slots, debug)
        self._sessions = sessions

    def close(self, lease: Lease, keep: bool = True) -> None:
        slot = lease.state_slot  # a lease that has ended names none
        super().close(lease, keep)
        self._sessions.forget(slot)


def cache_bytes(cache: Any) -> int:
    """Bytes of memory behind a cache object; what several tensors share counts once, what a view hides counts."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in cache_tensors(cache)}
    return sum(storage.nbytes() for storage in storages.values())


def cache_tensors(cache: Any) -> Iterator[torch.Tensor]:
    """All tensors inside a cache object, whatever its class: through lists, mappings and attributes."""
    seen: set[int] = set()
    waiting = [cache]
    while waiting:
        item = waiting.pop()
        if id(item) in seen or isinstance(item, (str, bytes, int, float, type, torch.nn.Module)):
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, (list, tuple, set)):
            waiting.extend(item)
        elif hasattr(item, "__dict__"):
            waiting.extend(vars(item).values())
