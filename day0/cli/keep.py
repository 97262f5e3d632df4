"""An engine's keeper: it runs a command, and lets nothing of it outlive the process that asked for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

from day0.engines.descendants import adopt_orphans, kill_descendants

NOT_STARTED = 127


def keep(argv: Sequence[str]) -> int:
    """The command's status, 128 and the signal where one ended it; by then nothing that it started runs any more.

    SIGTERM goes on to the command. When standard input closes, whoever asked is gone, and all is killed.
    """
    adopt_orphans()
    try:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        print(f"{argv[0]}: cannot be started: {error.strerror}", file=sys.stderr)
        return NOT_STARTED
    signal.signal(signal.SIGTERM, lambda number, frame: process.send_signal(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_when_alone, daemon=True).start()
    status = process.wait()
    kill_descendants()
    return status if status >= 0 else 128 - status


def _end_when_alone() -> None:
    while os.read(sys.stdin.fileno(), 1):  # returns nothing at the end of the pipe
        pass
    kill_descendants()
    os._exit(128 + signal.SIGKILL)


def main() -> None:
    """Keep the command of this process's arguments."""
    sys.exit(keep(sys.argv[1:]))
