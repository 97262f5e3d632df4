"""An engine from start to end: phases out of its log, ready by a checked answer, drained, or dead for a reason."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from day0.engines.failures import LogEnd, last_error
from day0.engines.phases import Progress
from day0.engines.process import how_ended
from day0.errors import EnvironmentFault

LOOK_SECONDS = 0.2
HEALTH_SECONDS = 1.0
"""How often the engine is asked for its health."""
UNHEALTHY_SECONDS = 60.0
"""How long a ready engine may be unhealthy or silent before it counts as dead."""
DRAIN_SECONDS = 60.0
"""How long requests in flight may take once the engine was told to end."""
QUIET_SECONDS = 300.0
"""After so long without a line in the log of a starting engine its user is told."""
TRIES = 3
"""How often a first answer is asked for that did not come, before the engine counts as broken."""


class Running(Protocol):
    """What is asked of the engine's processes."""

    log: Path

    def status(self) -> int | None: ...
    def ask_to_end(self) -> None: ...
    def kill(self) -> int: ...


@dataclass(frozen=True, slots=True)
class FirstAnswer:
    """What came of the first request: `fault` says what is wrong with it, `remark` what could not be checked.

    `has_come` is false where there was no answer at all, which may be too early and not wrong.
    """

    fault: str | None = None
    remark: str = ""
    has_come: bool = True


@dataclass(slots=True)
class Supervisor:
    """Follows one engine. `is_healthy` and `first_answer` ask it over HTTP; None for a node that has no API.

    `state` is "loading", "ready", "unhealthy" or "draining"; "running" where there is no API to ask.
    """

    progress: Progress
    log: Callable[[str], None]
    is_healthy: Callable[[], bool] | None
    first_answer: Callable[[], FirstAnswer]
    state: str = "loading"
    hurry: threading.Event = field(default_factory=threading.Event)
    _end: LogEnd = field(default_factory=LogEnd)
    _heard: float = field(default_factory=time.monotonic)
    _told: int = 0
    _fault: EnvironmentFault | None = None
    _over: threading.Event = field(default_factory=threading.Event)

    def on_line(self, line: str) -> None:
        """Take in a line of the engine's log."""
        self._end.lines.append(line)
        self._heard = now = time.monotonic()
        if self.state != "loading":
            return
        before, began = self.progress.phase, self.progress.began
        if self.progress.read(line, now):
            self._told = 0
            self.log(f"{before}: {now - began:.1f} s; now: {self.progress.phase}")
        share = self.progress.share
        if share is not None and share >= self._told + 25 and share < 100:
            self._told = share
            self.log(f"{self.progress.phase}: {share}%")

    def run(self, process: Running, stop: threading.Event) -> None:
        """Until `stop` is set, then drain the engine; `hurry` cuts that short. No process of the engine is left.

        Raises EnvironmentFault where the engine ends by itself, does not answer sensibly, or stops answering.
        """
        if self.is_healthy is None:
            self.state = "running"
        else:
            threading.Thread(target=self._probe, args=(self.is_healthy,), name="day0-engine", daemon=True).start()
        try:
            while not stop.wait(LOOK_SECONDS):
                status = process.status()
                if status is not None:
                    raise self._ended(process, status)
                if self._fault is not None:
                    raise self._fault
                self._mind_silence()
            self._drain(process)
        finally:
            self._over.set()
            if left := process.kill():
                self.log(f"{left} processes of the engine could not be ended")

    def _drain(self, process: Running) -> None:
        self.state = "draining"
        self.log(f"stopping: what is in flight has {DRAIN_SECONDS:.0f} s to finish; a second signal ends at once")
        process.ask_to_end()
        until = time.monotonic() + DRAIN_SECONDS
        while process.status() is None and time.monotonic() < until and not self.hurry.is_set():
            time.sleep(LOOK_SECONDS)

    def _ended(self, process: Running, status: int) -> EnvironmentFault:
        """Why the engine ended, from its log; all of the log is read by then, and no process of it is left."""
        process.kill()
        how = f"{self.progress.engine} {how_ended(status)}"
        where = "after it was ready" if self.state in ("ready", "unhealthy") else f"in phase {self.progress.phase!r}"
        found = self._end.explain()
        if found is not None:
            return EnvironmentFault(f"{how} {where}: {found.message} (log: {process.log})", hint=found.hint)
        said = last_error(self._end.lines)
        reason = f": {said}" if said else ""
        return EnvironmentFault(f"{how} {where}{reason} (log: {process.log})", hint="the end of the log may say more")

    def _probe(self, is_healthy: Callable[[], bool]) -> None:
        """In a thread of its own, since an answer may take minutes: health, then a first answer, then health again."""
        tries, well = 0, time.monotonic()
        while not self._over.wait(HEALTH_SECONDS) and self._fault is None:
            if is_healthy():
                well = time.monotonic()
                if self.state == "loading":
                    tries += 1
                    self.log("its API is there; a first answer is asked for")
                    self._judge(self.first_answer(), tries)
                elif self.state == "unhealthy":
                    self.state = "ready"
            elif self.state in ("ready", "unhealthy"):
                self.state = "unhealthy"
                if time.monotonic() - well > UNHEALTHY_SECONDS:
                    self._fault = EnvironmentFault(
                        f"{self.progress.engine} has not been healthy for {UNHEALTHY_SECONDS:.0f} s",
                        hint="its log says more",
                    )

    def _judge(self, answer: FirstAnswer, tries: int) -> None:
        if self._over.is_set() or self.state != "loading":
            return
        if answer.fault is not None:
            if answer.has_come or tries >= TRIES:
                self._fault = EnvironmentFault(
                    f"{self.progress.engine} answers, but not as a working model: {answer.fault}",
                    hint="`day0 run-checklist --target` looks closer; its log may say more",
                )
            return
        if answer.remark:
            self.log(f"weaker: {answer.remark}")
        self.progress.enter("ready", time.monotonic())
        self.state = "ready"
        self.log(f"ready after {sum(self.progress.seconds.values()):.1f} s: a first answer was checked")

    def _mind_silence(self) -> None:
        quiet = time.monotonic() - self._heard
        if self.state == "loading" and quiet > QUIET_SECONDS:
            self.log(f"{self.progress.phase}: no line in the log for {quiet:.0f} s")
            self._heard = time.monotonic()
