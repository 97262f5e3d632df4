from __future__ import annotations

import sys
import threading
import time

import pytest

from day0.runtime.deadline import Deadline, Overdue


def forever() -> None:
    while True:
        pass


def test_a_loop_without_end_is_ended() -> None:
    started = time.monotonic()
    with pytest.raises(Overdue, match=r"longer than 0\.05 seconds"), Deadline(0.05):
        forever()
    assert time.monotonic() - started < 5


def test_what_ends_in_time_is_left_alone() -> None:
    before = sys.gettrace()
    with Deadline(60):
        total = sum(number for number in range(1000))
    assert (total, sys.gettrace()) == (499500, before)


def test_it_works_outside_the_main_thread() -> None:
    seen: list[BaseException] = []

    def work() -> None:
        try:
            with Deadline(0.05):
                forever()
        except Overdue as error:
            seen.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(10)
    assert len(seen) == 1
