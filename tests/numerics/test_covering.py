"""Every two values that may meet do meet, in few combinations; a failure shrinks to what it takes."""

from __future__ import annotations

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from day0.numerics.covering import Settings, covering, smallest

AXES = {"a": (0, 1, 2), "b": (0, 1), "c": (0, 1, 2, 3), "d": (0, 1), "e": (0, 1, 2)}


def never_both(settings: Settings) -> bool:
    return not (settings["a"] == 2 and settings["c"] == 3) and not (settings["b"] == 1 and settings["d"] == 1)


def test_every_two_values_meet_that_may() -> None:
    rows = covering(AXES, never_both)
    assert rows
    assert all(never_both(row) for row in rows)
    for one, two in combinations(AXES, 2):
        for left, right in product(AXES[one], AXES[two]):
            reference = left == right == 0
            forbidden = {(one, left), (two, right)} in ({("a", 2), ("c", 3)}, {("b", 1), ("d", 1)})
            met = any(row[one] == left and row[two] == right for row in rows)
            assert met or reference or forbidden, (one, left, two, right)
            assert not (met and forbidden)


def test_pairs_need_few_rows_and_always_the_same() -> None:
    rows = covering(AXES, lambda row: True)
    assert len(rows) <= 18  # of 144; no fewer than 12 can do
    assert rows == covering(AXES, lambda row: True)
    assert dict.fromkeys(AXES, 0) not in rows


def test_an_axis_alone_is_tried_alone() -> None:
    assert covering({"a": (0, 1, 2), "b": (0,)}, lambda row: True) == ({"a": 1, "b": 0}, {"a": 2, "b": 0})
    assert covering({}, lambda row: True) == ()


@given(st.sets(st.sampled_from(sorted(AXES)), min_size=1), st.sets(st.sampled_from(sorted(AXES))))
def test_a_failure_shrinks_to_what_it_takes(needed: set[str], others: set[str]) -> None:
    reference = dict.fromkeys(AXES, 0)
    settings = {name: int(name in needed | others) for name in AXES}
    found = smallest(settings, reference, lambda row: all(row[name] == 1 for name in needed), lambda row: True)
    assert {name for name in AXES if found[name]} == needed


def test_what_is_not_allowed_is_not_tried() -> None:
    tried: list[Settings] = []

    def fails(row: Settings) -> bool:
        tried.append(row)
        return True

    settings, reference = {"a": 1, "b": 1, "d": 0}, {"a": 0, "b": 0, "d": 0}
    assert smallest(settings, reference, fails, lambda row: row["a"] == row["b"]) == settings
    assert all(row["a"] == row["b"] for row in tried)
