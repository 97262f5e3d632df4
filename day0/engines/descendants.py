"""The processes below this one: orphans among them are taken in, and all of them can be ended for certain."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Set

import psutil

_PR_SET_CHILD_SUBREAPER = 36
"""From linux/prctl.h: a descendant whose parent dies becomes a child of this process, not of process 1."""
_SETTLE_SECONDS = 5.0
"""How long processes may take to be gone once they were killed; one in the kernel's hands goes later."""


def adopt_orphans() -> None:
    """Take in descendants that lose their parent, so that they can be found. Linux alone has it."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(but: Set[int] = frozenset()) -> list[psutil.Process]:
    """All processes below this one that still run, but for some by their ids."""
    return [
        process for process in psutil.Process().children(recursive=True) if process.pid not in but and _runs(process)
    ]


def kill_descendants(but: Set[int] = frozenset()) -> int:
    """Kill the processes below this one, also those started meanwhile; how many are left after some seconds."""
    until = time.monotonic() + _SETTLE_SECONDS
    while (left := descendants(but)) and time.monotonic() < until:
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=0.5)
    return len(left)


def resident_bytes(but: Set[int] = frozenset()) -> int:
    """Memory that the processes below this one hold; pages that they share count for each of them."""
    total = 0
    for process in descendants(but):
        try:
            total += process.memory_info().rss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
