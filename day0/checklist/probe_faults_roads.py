"""Faults that one pair of settings brings out and no plain forward does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from day0.checklist.probe_faults_inside import patched
from day0.checklist.probe_paths import engine_of
from day0.checklist.target import CheckContext
from day0.runtime.batch import SequenceGroup
from day0.runtime.cache.manager import CacheManager
from day0.runtime.cache.prefix import PageNames, Prefix, Snapshots
from day0.runtime.cache.storage import CacheStorage, StateSnapshot
from day0.runtime.engine.runner import Runner
from day0.runtime.engine.scheduler import Chunk


@contextmanager
def page_before(context: CheckContext) -> Iterator[CheckContext]:
    """A chunk that begins inside a page reads the page before in its place."""
    sound = Runner._group

    def group(self: Runner, start: int, chunks: list[Chunk]) -> SequenceGroup:
        right = sound(self, start, chunks)
        sequence, size = chunks[0].sequence, self.cache.pages.page_size
        begin = sequence.computed // size * size
        if right.length == 1 or begin == 0:
            return right
        slots = right.kv_slots.clone()
        slots[0, begin : sequence.computed] = slots[0, begin - size : sequence.computed - size]
        return replace(right, kv_slots=slots)

    with patched(Runner, "_group", group):
        yield context


@contextmanager
def state_kept(context: CheckContext) -> Iterator[CheckContext]:
    """A sequence starts with the state that whoever had its slot has left there."""
    engine_of(context)  # a start with this fault in place would not get through its first forward
    sound = CacheStorage.reset_state
    lent: defaultdict[CacheStorage, set[int]] = defaultdict(set)

    def reset(self: CacheStorage, slot: int) -> None:
        if slot not in lent[self]:
            sound(self, slot)
        lent[self].add(slot)

    def poison(self: CacheStorage, slot: int) -> None:
        """Nothing: what is left is a state like any other, and no NaN gives it away."""

    with patched(CacheStorage, "reset_state", reset), patched(CacheStorage, "poison_state", poison):
        yield context


@contextmanager
def other_snapshot(context: CheckContext) -> Iterator[CheckContext]:
    """A prefix that is found goes on from the state of the one that was kept last."""

    def get(self: Snapshots, name: bytes) -> StateSnapshot:
        return next(reversed(self._kept.values()))

    with patched(Snapshots, "get", get):
        yield context


@contextmanager
def other_page(context: CheckContext) -> Iterator[CheckContext]:
    """Where pages are found again, the first of them stands in for the last as well."""
    sound = CacheManager.match

    def match(self: CacheManager, names: PageNames, token_ids: Sequence[int]) -> Prefix:
        found = sound(self, names, token_ids)
        return replace(found, pages=(*found.pages[:-1], *found.pages[:1]))

    with patched(CacheManager, "match", match):
        yield context


@contextmanager
def restart_off_by_one(context: CheckContext) -> Iterator[CheckContext]:
    """What was preempted and starts over is given positions one too high."""
    sound = Runner._positions

    def positions(self: Runner, chunks: list[Chunk]) -> object:
        places = sound(self, chunks)
        again = [chunk.sequence.num_generated > 0 and chunk.length > 1 for chunk in chunks]
        moved = [flag for chunk, flag in zip(chunks, again, strict=True) for _ in range(chunk.length)]
        return places + torch.tensor(moved).numpy()

    with patched(Runner, "_positions", positions):
        yield context
