"""The limit that noise sets, against known quantiles and against many runs of known delays."""

from __future__ import annotations

import math
import random

import pytest

from day0.checklist.checklist import CheckSpec, Measured, conclude
from day0.checklist.gate import ceiling, geometric_mean, student_quantile
from day0.errors import CannotSay


def rounds(source: random.Random, num: int, *, mean: float = 10.0, noise: float = 0.02) -> list[float]:
    return [mean * math.exp(source.gauss(0, noise)) for _ in range(num)]


@pytest.mark.parametrize(("freedom", "quantile"), [(6, 1.943), (10, 1.812), (30, 1.697), (1000, 1.646)])
def test_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert student_quantile(0.95, freedom) == pytest.approx(quantile, abs=2e-3)


def test_a_slowdown_is_found_and_no_change_is_none() -> None:
    source = random.Random(7)
    alarms, found = 0, 0
    for _ in range(400):
        before = rounds(source, 16)
        same, slower = rounds(source, 16), rounds(source, 16, mean=10.5)
        alarms += geometric_mean(same) > ceiling(before, same, 0.05)
        found += geometric_mean(slower) > ceiling(before, slower, 0.05)
    assert alarms / 400 < 0.075  # 5% and two and a half standard errors of 400 runs
    assert found / 400 >= 0.95


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ([10.0] * 3, [10.0] * 16, "3 rounds"),
        ([], [10.0] * 16, "0 rounds"),
        ([10.0] * 16, [math.nan] * 16, "no positive time"),
        ([5.0, 20.0] * 8, [5.0, 20.0] * 8, "too noisy"),
    ],
)
def test_what_cannot_be_told_is_not_told(before: list[float], now: list[float], said: str) -> None:
    with pytest.raises(CannotSay, match=said):
        ceiling(before, now, 0.05)


def test_a_check_with_rounds_is_judged_by_the_gate() -> None:
    source = random.Random(3)
    spec = CheckSpec("x", "performance", "x", "p", limits={"tpot_ms": {"slowdown_of_baseline": 0.05}})
    before = rounds(source, 16)
    baseline = {"tpot_ms": geometric_mean(before), "tpot_ms_rounds": before}

    def status(now: list[float]) -> str:
        return conclude(spec, Measured(1, {"tpot_ms": geometric_mean(now), "tpot_ms_rounds": now}), baseline).status

    assert status(before) == "pass"
    assert status([1.05 * value for value in before]) == "fail"
    assert status(before[:2]) == "skip"
