from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from day0.cli.main import main
from day0.cli.signals import Terminated, handling, terminable
from day0.errors import ExitCode


def test_sigterm_is_an_exception_and_then_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated), terminable():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_signal_ends_what_swallowed_the_first() -> None:
    script = (
        "import os, signal\n"
        "from day0.cli.signals import terminable\n"
        "class Swallows:\n"
        "    def __del__(self): os.kill(os.getpid(), signal.SIGTERM)\n"
        "with terminable():\n"
        "    Swallows()\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print('still here')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "")


def test_other_threads_set_no_handlers() -> None:
    seen: list[int] = []

    def work() -> None:
        with terminable(), handling({signal.SIGINT: lambda: None}):
            seen.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [1]


def test_a_command_that_is_terminated_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("day0.cli.main.run", lambda arguments: os.kill(os.getpid(), signal.SIGTERM))
    assert main(["inspect", "x"]) == ExitCode.INTERRUPTED
