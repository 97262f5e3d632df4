"""Paired acceptance: intervals and tests against definitions worked out another way, power against simulation."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from day0.checklist.acceptance import (
    Pairs,
    Ruling,
    Terms,
    compare,
    count_pairs,
    difference_interval,
    exact_p_worse,
    power,
    prompts_needed,
    rules_out_margin,
    score,
    wilson_interval,
)
from day0.errors import InputError

COUNTS = st.integers(min_value=0, max_value=60)
TABLES = st.builds(Pairs, COUNTS, COUNTS, COUNTS, COUNTS)


def test_pairs_are_counted_prompt_by_prompt() -> None:
    assert count_pairs([True, True, True, False, False], [True, False, False, True, False]) == Pairs(1, 2, 1, 1)


def test_lists_of_different_length_cannot_be_paired() -> None:
    with pytest.raises(InputError, match="2 outcomes against 1"):
        count_pairs([True, False], [True])


@pytest.mark.parametrize("terms", [{"margin": 0.0}, {"margin": 1.0}, {"alpha": 0.5}, {"churn": 0.48}, {"churn": -0.1}])
def test_terms_that_make_no_test_are_refused(terms: dict[str, float]) -> None:
    with pytest.raises(InputError, match="make no test"):
        Terms(**terms)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (0, 0, 0.0, 1.0)],
)
def test_wilson(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(
    ("lost", "gained", "chance"), [(0, 0, 1.0), (1, 0, 0.5), (5, 0, 1 / 32), (4, 1, 6 / 32), (0, 5, 1.0)]
)
def test_exact_test_counts_the_tail_of_a_fair_coin(lost: int, gained: int, chance: float) -> None:
    assert exact_p_worse(lost, gained) == chance


@pytest.mark.parametrize("total", [1, 30, 400])
def test_no_prompt_differing_is_not_no_uncertainty(total: int) -> None:
    reach = 1.959964**2 / (total + 1.959964**2)
    assert difference_interval(Pairs(total, 0, 0, 0), 0.95) == pytest.approx((-reach, reach), abs=1e-6)


@pytest.mark.parametrize("table", [Pairs(20, 7, 2, 11), Pairs(3, 0, 1, 0), Pairs(0, 4, 4, 0), Pairs(40, 0, 9, 1)])
@pytest.mark.parametrize("hypothesis", [-0.3, -0.05, 0.02, 0.4])
def test_score_uses_the_most_likely_table_under_the_hypothesis(table: Pairs, hypothesis: float) -> None:
    def likelihood(only_base: float) -> float:
        only_candidate = only_base + hypothesis
        shares = (only_base, only_candidate, 1 - only_base - only_candidate)
        counts = (table.only_base, table.only_candidate, table.both + table.neither)
        if min(shares) < 0:
            return -math.inf
        return sum(count * math.log(max(share, 1e-300)) for count, share in zip(counts, shares, strict=True) if count)

    best = max((step / 200_000 for step in range(200_001)), key=likelihood)
    spread = math.sqrt(table.num_prompts * (2 * best + hypothesis - hypothesis**2))
    surplus = table.only_candidate - table.only_base - table.num_prompts * hypothesis
    assert score(table, hypothesis) == pytest.approx(surplus / spread, rel=1e-3)


@given(TABLES)
def test_interval_holds_the_observed_difference_and_mirrors(table: Pairs) -> None:
    low, high = difference_interval(table, 0.9)
    observed = (table.only_candidate - table.only_base) / max(1, table.num_prompts)
    assert low - 1e-9 <= observed <= high + 1e-9
    exchanged = Pairs(table.both, table.only_candidate, table.only_base, table.neither)
    assert difference_interval(exchanged, 0.9) == pytest.approx((-high, -low), abs=1e-9)


@given(TABLES)
@settings(max_examples=30)
def test_only_the_interval_accepts(table: Pairs) -> None:
    terms = Terms(churn=0.0)
    ruled = compare(table, terms)
    assert rules_out_margin(table, terms) == (ruled.low > -terms.margin)
    if ruled.ruling is Ruling.HOLDS:
        assert ruled.low > -terms.margin and table.base_solved > 0
    if ruled.ruling is Ruling.WORSE:
        assert ruled.p_worse <= terms.alpha and ruled.difference < 0


@pytest.mark.parametrize("total", [0, 1, 100, 300])
def test_nothing_against_nothing_never_passes(total: int) -> None:
    ruled = compare(Pairs(0, 0, 0, total), Terms())
    assert ruled.ruling is Ruling.NOT_ENOUGH and ruled.reason


@pytest.mark.parametrize(
    ("table", "ruling", "reason"),
    [
        (Pairs(5, 0, 0, 5), Ruling.NOT_ENOUGH, "not ruled out"),
        (Pairs(80, 0, 0, 20), Ruling.HOLDS, "at most 2.6%"),
        (Pairs(80, 12, 1, 7), Ruling.WORSE, "12 prompts were lost and 1 gained"),
        (Pairs(5, 0, 0, 95), Ruling.NOT_ENOUGH, "solves 5 of 100: too few"),
        (Pairs(6, 0, 0, 94), Ruling.HOLDS, "ruled out"),
        (Pairs(990, 8, 1, 1), Ruling.HOLDS, "ruled out"),  # a drop is there for certain, and within the margin
    ],
)
def test_rulings(table: Pairs, ruling: Ruling, reason: str) -> None:
    ruled = compare(table, Terms())
    assert ruled.ruling is ruling and reason in ruled.reason


def test_power_is_what_a_simulation_finds() -> None:
    terms, draws = Terms(margin=0.1, churn=0.03), random.Random(5)
    stated = power(80, terms)

    def share(wanted: Ruling, lose: float) -> float:
        rulings = []
        for _ in range(1500):
            fates = draws.choices(("lost", "gained", "same"), (lose, terms.churn, 1 - lose - terms.churn), k=80)
            lost, gained = fates.count("lost"), fates.count("gained")
            table = Pairs(80 - lost - gained, lost, gained, 0)
            worse = exact_p_worse(lost, gained) <= terms.alpha
            holds = rules_out_margin(table, terms)
            rulings.append(Ruling.HOLDS if holds else Ruling.WORSE if worse else Ruling.NOT_ENOUGH)
        return rulings.count(wanted) / len(rulings)

    lose = terms.churn + terms.margin
    assert share(Ruling.WORSE, lose) == pytest.approx(stated.finds_drop, abs=0.04)
    assert share(Ruling.HOLDS, lose) == pytest.approx(stated.accepts_drop, abs=0.02)
    assert share(Ruling.HOLDS, terms.churn) == pytest.approx(stated.holds_when_equal, abs=0.04)


@pytest.mark.parametrize("churn", [0.0, 0.01, 0.05])
@pytest.mark.parametrize("total", [30, 100, 160])
def test_equal_candidates_are_rarely_called_worse_and_worse_ones_rarely_accepted(total: int, churn: float) -> None:
    """The two errors that a gate makes, exactly, against the share that was agreed on."""
    terms = Terms(margin=0.05, churn=churn)
    assert power(total, terms).accepts_drop <= 1.25 * terms.alpha  # a score interval: near its level, not below it
    false_alarm = power(total, Terms(margin=1e-9, churn=churn)).finds_drop  # a "drop" of nothing
    assert false_alarm <= terms.alpha


def test_prompts_needed_is_the_first_number_that_suffices() -> None:
    terms = Terms(margin=0.2, churn=0.0)
    needed = prompts_needed(terms)
    assert needed == 20
    assert power(needed, terms).holds_when_equal == pytest.approx(1.0)
    assert power(needed - 10, terms).holds_when_equal == 0.0
    assert prompts_needed(Terms(margin=0.02), at_most=50) is None


def test_the_power_is_said_in_a_sentence() -> None:
    said = power(100, Terms()).sentence(Terms())
    assert said.startswith("With 100 prompts a drop of 5.0% is found with probability 0.44")
