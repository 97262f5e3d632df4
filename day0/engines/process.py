"""An engine as processes of this host: started with a keeper above them, their log followed, ended together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from day0.engines.descendants import adopt_orphans, descendants, kill_descendants, resident_bytes

MODULES: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("vllm",): ("-m", "vllm.entrypoints.cli.main"),
    ("transformers",): ("-m", "transformers.cli.transformers"),
    ("python3",): (),
}
"""What an engine's command is to its own interpreter."""
POLL_SECONDS = 0.2
"""How often the log is looked at."""
FOLLOW_SECONDS = 2.0
"""How long the end waits for the last lines of the log."""


def command_of(argv: Sequence[str], python: str) -> tuple[str, ...]:
    """A launch's command line, run by the interpreter that has the engine."""
    return (python, *MODULES[(argv[0],)], *argv[1:])


def environment_of(python: str, env: Mapping[str, str]) -> dict[str, str]:
    """This environment, with a launch's own variables and the programs of the interpreter's environment found first."""
    programs = os.path.dirname(os.path.abspath(python))  # not resolved: a venv's interpreter is a link
    merged = os.environ | dict(env) | {"PATH": os.pathsep.join((programs, os.environ.get("PATH", os.defpath)))}
    return {name: value for name, value in merged.items() if name != "DAY0_API_KEY"} | {"PYTHONUNBUFFERED": "1"}


_KEEPER = "import sys; sys.path.insert(0, sys.argv.pop(1)); from {} import main; main()"
"""How the keeper is started: our package is on its path, and not on that of the engine."""


class EngineProcess:
    """A command under a keeper (a module of ours), which ends all of it, also where this process is killed.

    `on_line` is called in a thread of its own for each line of the log, where a carriage return ends a line too.
    """

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], log: Path, on_line: Callable[[str], None], keeper: str
    ) -> None:
        adopt_orphans()
        self.log = log
        self._on_line = on_line
        self._others = frozenset(process.pid for process in descendants())
        package = str(Path(__file__).resolve().parents[2])
        with open(log, "wb") as sink:
            self._keeper = subprocess.Popen(
                [sys.executable, "-c", _KEEPER.format(keeper), package, *argv],
                stdin=subprocess.PIPE,  # closes when this process ends, however it does
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=dict(env),
                start_new_session=True,
            )
        self._follower = threading.Thread(target=self._follow, name="day0-engine-log", daemon=True)
        self._follower.start()

    def status(self) -> int | None:
        """The command's exit status, None while it runs; 128 and the signal where a signal ended it."""
        status = self._keeper.poll()
        return status if status is None or status >= 0 else 128 - status

    def resident_bytes(self) -> int:
        """Memory that the engine's processes hold."""
        return resident_bytes(self._others)

    def ask_to_end(self) -> None:
        """SIGTERM to the engine's first process, which is to end the others."""
        if self.status() is None:
            self._keeper.send_signal(signal.SIGTERM)

    def kill(self) -> int:
        """End everything that the engine started, now; how many processes are left: none but on a sick host."""
        left = kill_descendants(self._others)
        self._follower.join(FOLLOW_SECONDS)
        return left

    def _follow(self) -> None:
        with open(self.log, encoding="utf-8", errors="replace", newline=None) as stream:
            rest = ""
            while True:
                is_over = self._keeper.poll() is not None
                piece = stream.read()
                *lines, rest = (rest + piece).split("\n")
                for line in lines:
                    self._on_line(line)
                if is_over and not piece:
                    break
                if not piece:
                    time.sleep(POLL_SECONDS)
            if rest:
                self._on_line(rest)


def how_ended(status: int) -> str:
    """An exit status in words."""
    if status > 128:
        try:
            return f"was killed by {signal.Signals(status - 128).name}"
        except ValueError:
            pass
    return f"ended with status {status}"
