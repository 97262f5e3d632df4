from __future__ import annotations

from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from day0.plan.stages import balance

costs = st.lists(st.integers(0, 50), min_size=1, max_size=8)


def heaviest(loads: list[int], first: int, last: int, cuts: list[int]) -> int:
    bounds = [0, *cuts, len(loads)]
    sums = [sum(loads[start:end]) for start, end in pairwise(bounds)]
    sums[0] += first
    sums[-1] += last
    return max(sums)


@given(costs, st.integers(0, 100), st.integers(0, 100), st.data())
def test_no_other_cut_has_a_lighter_heaviest_stage(
    loads: list[int], first: int, last: int, data: st.DataObject
) -> None:
    stages = data.draw(st.integers(1, len(loads)))
    found = balance(loads, first, last, stages)
    assert [index for stage in found for index in stage] == list(range(len(loads)))
    assert all(len(stage) for stage in found) and len(found) == stages
    best = min(heaviest(loads, first, last, list(cuts)) for cuts in combinations(range(1, len(loads)), stages - 1))
    assert heaviest(loads, first, last, [stage.start for stage in found[1:]]) == best


def test_the_ends_carry_less_when_tables_weigh_on_them() -> None:
    assert [len(stage) for stage in balance([10] * 12, 20, 20, 4)] == [2, 4, 4, 2]
