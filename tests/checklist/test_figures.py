"""Load figures from known timings, and a memory peak that was really there."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from day0.checklist.figures import SAMPLE_SECONDS, MemoryPeak, Timing, largest, load_figures, percentile, share


def test_figures_of_exactly_known_delays() -> None:
    timings = [Timing(arrivals=(0.1, 0.2, 0.3), tokens=3), Timing(arrivals=(0.3, 0.5, 0.7), tokens=3)]
    found = load_figures(timings, concurrency=2, wall_seconds=2.0)
    assert found.ttft_ms == pytest.approx(200.0)
    assert found.tpot_ms == pytest.approx(150.0)
    assert found.tpot_p95_ms == pytest.approx(200.0)
    assert found.tokens_per_s == pytest.approx(3.0)
    assert found.requests == 2


def test_several_tokens_in_one_arrival_still_count_each() -> None:
    found = load_figures([Timing(arrivals=(0.1, 0.5), tokens=5)], 1, 1.0)
    assert found.tpot_ms == pytest.approx(100.0)


def test_no_figures_from_nothing() -> None:
    with pytest.raises(AssertionError):
        load_figures([Timing(arrivals=(), tokens=0)], 1, 1.0)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 5), (0.95, 10), (0.9, 9), (1.0, 10), (0.0, 1)])
def test_percentile_is_a_sample(share: float, expected: int) -> None:
    assert percentile(list(range(10, 0, -1)), share) == expected


def test_the_largest_of_values_with_nan_is_nan() -> None:
    assert largest([1.0, 3.0, 2.0]) == 3.0 and largest([]) == 0.0
    assert math.isnan(largest([1.0, math.nan, 2.0])) and math.isnan(largest([math.nan]))


def test_a_share_of_nothing() -> None:
    assert (share(1.0, 2.0), share(0.0, 0.0), share(1e-9, 0.0)) == (0.5, 0.0, math.inf)
    assert share(math.nan, 0.0) == math.inf


def test_memory_peak_sees_what_was_freed_again() -> None:
    size = 64 * 2**20
    with MemoryPeak() as memory:
        block = np.ones(size, dtype=np.uint8)
        time.sleep(5 * SAMPLE_SECONDS)
        del block
    assert size * 0.8 <= memory.peak - memory.before <= size * 1.5
