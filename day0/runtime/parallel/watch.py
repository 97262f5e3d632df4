"""Who is still alive: every rank says so once a second in a store that all can read, and reads what the others say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import torch.distributed as dist

from day0.errors import EnvironmentFault

BEAT_SECONDS = 1.0
SILENT_BEATS = 6
"""A rank that has said nothing for so many beats of one's own is taken for dead. A clock would say so of everybody
after the whole machine has stood still."""
GRACE_SECONDS = 2.0
"""How long a rank may stay in a collective once another is dead, before it is woken."""
EXPLAIN_SECONDS = 9.0
"""How long an error of a collective waits for the name of the rank that died."""
ALIVE, DEATH = "alive", "death"
"""Keys of the store: what each rank says, by its number, and who has died."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the store of the ranks is."""

    host: str
    port: int


def connect(address: Address, timeout: float = 30.0) -> dist.TCPStore:
    """A connection of its own to the store, whose calls wait for nobody else's."""
    return dist.TCPStore(
        address.host, address.port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=timeout)
    )


@dataclass(slots=True)
class Watch:
    """One rank's look at the others. `logs` names each rank's log, where there is one.

    `on_death` is called once where one has died, `on_stuck` where this rank then does not come back from its work by
    itself, as from a collective of a backend that waits for ever.
    """

    rank: int
    size: int
    address: Address
    logs: dict[int, str] = field(default_factory=dict)
    on_stuck: Callable[[], None] | None = None
    on_death: Callable[[], None] | None = None
    death: EnvironmentFault | None = None
    _working: bool = False
    _stopped: threading.Event = field(default_factory=threading.Event)
    _died: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="day0-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No more is said or read; the others must have been told to stop too."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(2 * BEAT_SECONDS)

    def check(self) -> None:
        """Raise what is known of a rank's death."""
        if self.death is not None:
            raise self.death

    @contextmanager
    def working(self) -> Iterator[None]:
        """What needs the other ranks happens inside."""
        self.check()
        self._working = True
        try:
            yield
        finally:
            self._working = False

    def report(self, rank: int, how: str) -> None:
        """Tell all ranks that one has died."""
        if self._stopped.is_set() or self.death is not None:
            return
        message = f"rank {rank} of {self.size} {how}"
        self._note(message, self.logs.get(rank, ""))
        try:
            connect(self.address, timeout=2.0).set(DEATH, f"{message}\n{self.logs.get(rank, '')}")
        except (RuntimeError, OSError):
            return  # the store is gone with rank 0: the others notice by themselves

    def explain(self, error: Exception) -> EnvironmentFault:
        """What a collective's error is about: a rank's death, as soon as somebody has noticed it."""
        if self._died.wait(EXPLAIN_SECONDS) and self.death is not None:
            return self.death
        return EnvironmentFault(f"the ranks lost each other: {str(error).splitlines()[0]}")

    def _note(self, message: str, log: str) -> None:
        hint = f"its log: {log}" if log else ""
        self.death = EnvironmentFault(message, hint=hint)
        self._died.set()
        if self.on_death is not None:
            self.on_death()

    def _run(self) -> None:
        try:
            self._beat(connect(self.address))
        except (RuntimeError, OSError):
            if not self._stopped.is_set() and self.death is None:
                self._note(f"rank 0 of {self.size} has gone: its store does not answer", self.logs.get(0, ""))
        working = self._working
        if self.death is None or self._stopped.wait(GRACE_SECONDS) or self.on_stuck is None:
            return
        if working and self._working:
            self.on_stuck()

    def _beat(self, store: dist.TCPStore) -> None:
        names = [f"{ALIVE}/{rank}" for rank in range(self.size)]
        seen: dict[int, tuple[bytes, int]] = {}
        number = 0
        while not self._stopped.wait(BEAT_SECONDS):
            number += 1
            store.set(names[self.rank], str(number))
            if store.check([DEATH]):
                message, _, log = store.get(DEATH).decode().partition("\n")
                self._note(message, log)
            for rank, name in enumerate(names):
                if not store.check([name]):
                    continue  # it is still on its way: `joining` waits for it
                said = store.get(name)
                if seen.get(rank, (None, 0.0))[0] != said:
                    seen[rank] = (said, number)
                elif number - seen[rank][1] >= SILENT_BEATS and rank != self.rank:
                    self.report(rank, f"has said nothing for {SILENT_BEATS * BEAT_SECONDS:.0f} s")
            if self.death is not None:
                return
