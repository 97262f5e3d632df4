"""Sequences that wait, ordered so that a client with many of them does not keep the others from the batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain

from day0.runtime.engine.sequence import QueueFull, Sequence

MAX_KEPT = 4096
"""Clients whose account outlives their last waiting request."""


class FairQueue:
    """A queue of queues, one per client (`Request.client`), with an account of the tokens computed for each.

    Whose account is lowest comes next; among equals, who came first. A client that comes back after a pause begins at
    the level of those that waited meanwhile, so that it cannot save up (the virtual token counter of Sheng et al.,
    "Fairness in Serving Large Language Models", 2024). One client's requests keep their order. Sequences that ran
    already, and were put back, come before all others. Nothing here looks at a clock, so ranks agree.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._returned: deque[Sequence] = deque()
        self._lines: dict[str, deque[tuple[int, Sequence]]] = {}
        self._account: dict[str, int] = {}
        self._level = 0
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._returned) + sum(len(line) for line in self._lines.values())

    def __iter__(self) -> Iterator[Sequence]:
        waiting = sorted(chain.from_iterable(self._lines.values()), key=lambda entry: entry[0])
        return chain(tuple(self._returned), (sequence for _, sequence in waiting))

    def check(self, client: str) -> None:
        """Raise QueueFull where no more of `client` are taken.

        At the limit a client that has less than an equal share of it is still taken, up to twice the limit in all.
        """
        waiting = len(self)
        if waiting < self.limit:
            return
        own = len(self._lines.get(client, ()))
        share = self.limit // len(self._lines.keys() | {client})
        if own >= share or waiting >= 2 * self.limit:
            raise QueueFull(f"{waiting} requests are waiting, {own} of them this client's; the limit is {self.limit}")

    def append(self, sequence: Sequence) -> None:
        client = sequence.request.client
        if client not in self._lines:
            level = min((self._account[other] for other in self._lines), default=self._level)
            self._account[client] = max(self._account.get(client, 0), level)
            self._lines[client] = deque()
        self._lines[client].append((self._arrivals, sequence))
        self._arrivals += 1

    def put_back(self, sequence: Sequence) -> None:
        """Let a sequence that ran wait in front of all others."""
        self._returned.appendleft(sequence)

    def first(self) -> Sequence:
        """The sequence to start next; IndexError where none waits."""
        return self._returned[0] if self._returned else self._lines[self._next_client()][0][1]

    def pop(self) -> Sequence:
        """Take out what `first` shows."""
        if self._returned:
            return self._returned.popleft()
        client = self._next_client()
        _, sequence = self._lines[client].popleft()
        self._level = max(self._level, self._account[client])
        self._close_line(client)
        return sequence

    def remove(self, sequence: Sequence) -> None:
        """Take out a sequence, wherever it waits; ValueError where it does not."""
        if sequence in self._returned:
            self._returned.remove(sequence)
            return
        client = sequence.request.client
        line = self._lines.get(client, deque())
        self._lines[client] = deque(entry for entry in line if entry[1] is not sequence)
        removed = len(line) - len(self._lines[client])
        self._close_line(client)
        if not removed:
            raise ValueError(f"sequence {sequence.id} does not wait")

    def charge(self, client: str, tokens: int) -> None:
        """Book tokens computed for a client."""
        self._account[client] = self._account.get(client, self._level) + tokens

    def _next_client(self) -> str:
        if not self._lines:
            raise IndexError("nothing waits")
        return min(self._lines, key=lambda client: (self._account[client], self._lines[client][0][0]))

    def _close_line(self, client: str) -> None:
        if self._lines[client]:
            return
        del self._lines[client]
        if len(self._account) > MAX_KEPT:  # an account below the level says nothing that coming back would not
            self._account = {
                name: account for name, account in self._account.items() if name in self._lines or account > self._level
            }
            while len(self._account) > MAX_KEPT + len(self._lines):
                del self._account[next(name for name in self._account if name not in self._lines)]
