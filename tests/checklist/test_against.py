"""Two targets held against each other: answers made up, with what is to be found in them known."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from day0.checklist.acceptance import Ruling, Terms
from day0.checklist.against import NEAR_TIE, Against, against, divergence_bound, questions
from day0.checklist.target import Answer

ASKED = questions(120, 0)
TOP = {" a": math.log(0.5), " b": math.log(0.2), " c": math.log(0.1)}


def answers(right: int = 60, top: dict[str, float] = TOP) -> list[Answer]:
    return [
        Answer("done", text=f" {one.answer}" if index < right else " no", top_logprobs=(top, top))
        for index, one in enumerate(ASKED)
    ]


def judged(candidate: list[Answer], base: list[Answer]) -> Against:
    return against(("A", candidate), ("B", base), ASKED, "m", Terms())


def test_a_target_against_its_equal_holds():
    result = judged(answers(), answers())
    assert result.verdict is Ruling.HOLDS and result.numerics == "equal"
    assert result.same_text == 120 and result.places == 240 and result.divergence == 0.0
    assert 0.95 < result.agreement[0] < 1.0 == result.agreement[1]


def test_nothing_right_against_nothing_right_is_not_enough():
    result = judged(answers(right=0), answers(right=0))
    assert result.numerics == "equal" and result.verdict is Ruling.NOT_ENOUGH


def test_fewer_right_answers_are_worse():
    result = judged(answers(right=40), answers(right=60))
    assert result.acceptance.ruling is Ruling.WORSE and result.verdict is Ruling.WORSE


def test_without_log_probabilities_nothing_is_said_of_the_numbers():
    mute = [replace(answer, top_logprobs=()) for answer in answers()]
    result = judged(mute, answers())
    assert result.numerics == "not-enough-data" and result.divergence is None
    assert result.verdict is Ruling.NOT_ENOUGH


def test_an_answer_that_did_not_come_is_counted_and_never_passes():
    short = [*answers()[:-1], Answer("failed", "gone")]
    result = judged(short, answers())
    assert result.unanswered == 1 and result.verdict is Ruling.NOT_ENOUGH


@pytest.mark.parametrize(("margin", "numerics"), [(NEAR_TIE * 0.5, "equal"), (NEAR_TIE * 2, "deviates")])
def test_a_first_token_that_differs_is_excused_by_a_near_tie_alone(margin, numerics):
    base = {" a": -1.0, " b": -1.0 - margin, " c": -3.0}
    other = {" a": -1.0 - margin / 10, " b": -1.0, " c": -3.0}
    candidate = answers()
    candidate[3] = replace(candidate[3], top_logprobs=(TOP, other))
    base_side = answers()
    base_side[3] = replace(base_side[3], top_logprobs=(TOP, base))
    result = judged(candidate, base_side)
    assert result.numerics == numerics and len(result.partings) == 1
    parting = result.partings[0]
    assert (parting.question, parting.place, parting.base, parting.candidate) == (3, 1, " a", " b")
    assert parting.margin == pytest.approx(margin)


def test_a_choice_that_the_other_does_not_even_tell_is_no_near_tie():
    candidate = answers()
    candidate[0] = replace(candidate[0], top_logprobs=({" z": -0.1, " a": -3.0},))
    result = judged(candidate, answers())
    assert result.numerics == "deviates" and result.partings[0].margin is None


def test_what_follows_a_parting_is_not_compared():
    candidate = answers()
    candidate[0] = replace(candidate[0], top_logprobs=({" b": -0.9, " a": -1.0}, {" q": -0.0001}))
    assert judged(candidate, answers()).places == 239


@pytest.mark.parametrize("change", [{" a": math.log(0.65)}, {" c": math.log(0.03)}, {" a": math.nan}])
def test_other_probabilities_deviate(change):
    assert judged(answers(top=TOP | change), answers()).numerics == "deviates"


def test_the_divergence_is_that_of_the_outcomes_told():
    base, other = {"a": math.log(0.5), "b": math.log(0.3)}, {"a": math.log(0.4), "c": math.log(0.2)}
    assert divergence_bound(base, other) == pytest.approx(0.5 * math.log(0.5 / 0.4) + 0.5 * math.log(0.5 / 0.6))


@given(st.lists(st.floats(0.01, 1.0), min_size=4, max_size=8), st.lists(st.floats(0.01, 1.0), min_size=8, max_size=8))
def test_the_bound_is_never_above_the_divergence(ours, theirs):
    p = [value / sum(ours) for value in ours]
    q = [value / sum(theirs[: len(p)]) for value in theirs[: len(p)]]
    truth = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    told = [{str(i): math.log(v) for i, v in sorted(enumerate(side), key=lambda e: -e[1])[:3]} for side in (p, q)]
    assert 0.0 <= divergence_bound(*told) <= truth + 1e-9


def test_questions_are_repeatable_and_all_different():
    assert questions(500, 1) == questions(500, 1) != questions(500, 2)
    assert len({one.prompt for one in questions(2000, 0)}) == 2000
    assert ASKED[0].is_answered_by(" Paris.\n") and not ASKED[0].is_answered_by(" Parisian")
