"""What ranks settle between each other besides tensors: faults while loading, the cache's size, one rank's word."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from day0.errors import Day0Error, EnvironmentFault

Explain = Callable[[Exception], EnvironmentFault]
"""What to raise instead of an error of a collective: who died."""


def unexplained(error: Exception) -> EnvironmentFault:
    return EnvironmentFault(f"the ranks lost each other: {error}")


@dataclass(frozen=True, slots=True)
class Meeting:
    """All ranks of a model, through host memory; one rank alone agrees with itself. All call a method together."""

    size: int = 1
    rank: int = 0
    members: dist.ProcessGroup | None = None
    explain: Explain = unexplained

    def tell(self, word: Any, teller: int = 0) -> Any:
        """What rank `teller` says, on every rank; anything that can be pickled."""
        if self.size == 1:
            return word
        words = [word]
        with self._told():
            dist.broadcast_object_list(words, group_src=teller, group=self.members)
        return words[0]

    def hear(self, word: Any) -> list[Any]:
        """What each rank says, in order, on every rank."""
        words: list[Any] = [word] * self.size
        if self.size > 1:
            with self._told():
                dist.all_gather_object(words, word, group=self.members)
        return words

    def collect(self, word: Any, collector: int = 0) -> list[Any]:
        """What each rank says, in order, on rank `collector`; nothing on the others."""
        words: list[Any] = [word] * self.size
        if self.size > 1:
            with self._told():
                dist.gather_object(
                    word, words if self.rank == collector else None, group_dst=collector, group=self.members
                )
        return words if self.rank == collector else []

    def least(self, count: int) -> int:
        """The smallest of the ranks' numbers."""
        return min(self.hear(count))

    @contextmanager
    def together(self) -> Iterator[None]:
        """Nobody goes on from here where somebody could not: the first rank's fault is raised on all of them."""
        fault: Day0Error | None = None
        try:
            yield
        except Day0Error as error:
            fault = error
        for rank, found in enumerate(self.hear(fault)):
            if found is not None:
                if rank != self.rank and self.size > 1:
                    found.hint = found.hint or f"found by rank {rank}"
                raise found

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise self.explain(error) from error
