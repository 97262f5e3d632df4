"""What signals do to a command: SIGTERM is an exception, so that whatever minds Ctrl-C minds an orchestrator too."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


class Terminated(KeyboardInterrupt):
    """The process was asked to end (SIGTERM)."""


@contextmanager
def terminable() -> Iterator[None]:
    """Raise Terminated on SIGTERM; without this the process is gone with its work half done."""
    with handling({signal.SIGTERM: _terminate}):
        yield


@contextmanager
def handling(actions: Mapping[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    """Call an action for each of these signals. Only the main thread may set handlers; elsewhere this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _handler(action)) for number, action in actions.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _handler(action: Callable[[], None]) -> Callable[[int, object], None]:
    return lambda number, frame: action()


def _terminate() -> None:
    # An exception is lost where Python was in the middle of clearing up an object. A second signal is not.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise Terminated
