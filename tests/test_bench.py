"""Load figures from known timings, and baselines that refuse what they are not of."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from day0.bench import (
    SAMPLE_SECONDS,
    Baseline,
    MemoryPeak,
    Timing,
    load_figures,
    percentile,
    read_baseline,
    save_baseline,
)
from day0.errors import InputError

KEY = {"model": "tiny", "device": "cpu", "torch": "2.13"}


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


def test_memory_peak_sees_what_was_freed_again() -> None:
    size = 64 * 2**20
    with MemoryPeak() as memory:
        block = np.ones(size, dtype=np.uint8)
        time.sleep(5 * SAMPLE_SECONDS)
        del block
    assert size * 0.8 <= memory.peak - memory.before <= size * 1.5


def test_a_baseline_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "made" / "base.json"
    baseline = Baseline(key=KEY, measured={"performance.single": {"tpot_ms": 3.5}})
    save_baseline(baseline, path)
    assert read_baseline(path, KEY) == baseline
    assert [entry.name for entry in path.parent.iterdir()] == ["base.json"]


@pytest.mark.parametrize(
    "key", [KEY | {"model": "other"}, KEY | {"torch": "2.14"}, KEY | {"new": "x"}, {"model": "tiny"}]
)
def test_a_foreign_baseline_is_refused(tmp_path: Path, key: dict[str, str]) -> None:
    path = tmp_path / "base.json"
    save_baseline(Baseline(key=KEY, measured={}), path)
    with pytest.raises(InputError, match="another"):
        read_baseline(path, key)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"key": {}}', b'{"key": {"a": 1}, "measured": {}}'])
def test_what_is_no_baseline_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "base.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a baseline"):
        read_baseline(path, KEY)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_baseline(tmp_path / "absent.json", KEY)
