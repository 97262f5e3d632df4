"""An end for Python code that may have none, such as the loops of a stranger's chat template."""

from __future__ import annotations

import sys
import time
from types import FrameType, TracebackType
from typing import Any


class Overdue(Exception):
    """The code inside a `Deadline` ran longer than it may."""


class Deadline:
    """Raises Overdue in this thread from the first line of Python that runs later than `seconds` after the start.

    The clock is read at every line, through the interpreter's hook for debuggers, so the code is a few times slower;
    one long call into C ends by itself or not at all. Works in any thread, unlike a signal.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        self._end = time.monotonic() + self._seconds
        self._before = sys.gettrace()
        sys.settrace(self._look)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.settrace(self._before)

    def _look(self, frame: FrameType, event: str, argument: Any) -> Any:
        if time.monotonic() > self._end:
            raise Overdue(f"took longer than {self._seconds:g} seconds")
        return self._look
