"""Choices: exact tie, near tie or fault, by the scores they were made by; of several heads the worst one counts."""

from __future__ import annotations

import pytest
import torch

from day0.numerics.decisions import Decision, as_many, judge_choices

SCORES = torch.tensor([[0.9, 0.5, 0.5, 0.1], [0.9, 0.5, 0.5 - 1e-7, 0.1], [0.9, 0.8, 0.2, 0.1]])
WANTED = torch.tensor([[0, 1], [0, 1], [0, 1]])
OTHER = torch.tensor([[0, 2], [0, 2], [0, 2]])


def judged(found: torch.Tensor, wanted: torch.Tensor = WANTED, scores: torch.Tensor | None = SCORES) -> Decision:
    return judge_choices("layers.0.ffn.topk_ids", 0, 0, found, wanted, scores, tolerance=1e-6)


def test_a_flip_is_an_exact_tie_a_near_tie_or_a_fault() -> None:
    decision = judged(OTHER)
    assert (decision.flips, decision.exact_ties, decision.near_ties, decision.faults) == (3, 1, 1, 1)
    assert decision.position == 2 and decision.flipped == (0, 1, 2)
    assert decision.gap == pytest.approx(0.6) and decision.noise is not None and decision.noise < 1e-4


def test_order_is_no_flip_and_without_scores_nothing_is_excused() -> None:
    assert (judged(WANTED.flip(-1)).flips, judged(WANTED.flip(-1)).order) == (0, 3)
    assert judged(OTHER, scores=None).unknown == 3


@pytest.mark.parametrize("found", [[[0, 0], [1, 1], [0, 9]], [[0, -1], [-1, -1], [1, 1]]])
def test_twice_the_same_too_few_and_what_is_not_there_are_faults(found: list[list[int]]) -> None:
    assert judged(torch.tensor(found)).faults == 3


def test_one_that_was_there_chosen_twice_where_there_was_no_other() -> None:
    alone = torch.tensor([[0, -1]])
    assert judged(torch.tensor([[0, 0]]), alone, SCORES[:1]).faults == 1


def test_a_token_is_what_the_worst_of_its_heads_is() -> None:
    found, wanted = OTHER[None].transpose(0, 1).repeat(1, 2, 1), WANTED[:, None].repeat(1, 2, 1)
    found[:, 1] = WANTED  # the second head flips nowhere but in the first token, at fault
    found[0, 1] = torch.tensor([0, 3])
    decision = judged(found, wanted, SCORES[:, None].repeat(1, 2, 1))
    assert (decision.tokens, decision.flips) == (3, 3)
    assert (decision.exact_ties, decision.near_ties, decision.faults) == (0, 1, 2)


def test_fewer_choices_are_the_same_with_places_left_empty() -> None:
    one, two = as_many(torch.tensor([[1]]), torch.tensor([[1, 4]]))
    assert one.tolist() == [[1, -1]] and two.tolist() == [[1, 4]]
