"""Rank 0 starts the others as child processes: each with a log, a pipe that ends it with its parent, and a look-out."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from day0.runtime.parallel.watch import Address, Watch

END_SECONDS = 10.0
"""How long a child has to end by itself."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a child is told through its pipe before anything else."""

    rank: int
    size: int
    address: Address
    device: str
    logs: dict[int, str]


class Children:
    """The processes of ranks 1 and up. `logs` names what each wrote; they are kept for as long as this folder is.

    A child that ends before it is told to is reported to the watch at once, with its signal or status.
    """

    def __init__(self, module: str, size: int, folder: Path | None = None) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="day0-ranks-"))
        self.logs = {rank: str(self.folder / f"rank-{rank}.log") for rank in range(1, size)}
        self._module, self._size = module, size
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ending = threading.Event()

    def start(self, address: Address, device: str, watch: Watch) -> None:
        """Start all; each joins the ranks at `address` by itself."""
        package = Path(__file__).resolve().parents[3]
        paths = [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        for rank in range(1, self._size):
            with open(self.logs[rank], "wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", self._module],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,  # a Ctrl-C in the terminal is for rank 0, which then tells the others
                )
            self._processes[rank] = process
            assert process.stdin is not None
            pickle.dump(Job(rank, self._size, address, device, self.logs), process.stdin)
            process.stdin.flush()
            threading.Thread(target=self._look_out, args=(rank, watch), daemon=True).start()

    def pid(self, rank: int) -> int:
        """The process of a rank."""
        return self._processes[rank].pid

    def kill(self) -> None:
        """End all at once: those that do not answer any more, and whoever waits for them in a collective."""
        self._ending.set()
        for process in self._processes.values():
            process.kill()

    def end(self) -> None:
        """Close the pipes, and end who has not ended by itself after that."""
        self._ending.set()
        for process in self._processes.values():
            if process.stdin is not None:
                process.stdin.close()
        for process in self._processes.values():
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _look_out(self, rank: int, watch: Watch) -> None:
        status = self._processes[rank].wait()
        if not self._ending.is_set():
            watch.report(rank, _how_ended(status))


def _how_ended(status: int) -> str:
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def read_job(pipe: BinaryIO, when_alone: Callable[[], None]) -> Job:
    """A child's job, from its parent; `when_alone` is called in a thread once the parent has gone or closed it."""
    job = pickle.load(pipe)
    assert isinstance(job, Job)

    def look_out() -> None:
        pipe.read()  # returns at the end of the pipe
        when_alone()

    threading.Thread(target=look_out, name="day0-parent", daemon=True).start()
    return job
