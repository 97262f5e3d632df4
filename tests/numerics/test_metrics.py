"""Metrics: what they measure, and that nothing constant, broken or misshapen can look right."""

from __future__ import annotations

import math

import pytest
import torch

from day0.numerics.metrics import difference, greedy_margin, kl_divergence, top_k_agreement


def rows(count: int = 7, width: int = 13, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


def test_equal_tensors_are_equal() -> None:
    found = difference(rows(), rows())
    assert (found.kind, found.error, found.max_abs) == ("equal", 0.0, 0.0)


def test_error_is_the_worst_rows_and_names_it() -> None:
    reference = rows()
    candidate = reference.clone()
    candidate[4] *= 1.01
    candidate[2] *= 1.001
    found = difference(candidate, reference)
    assert found.kind == "precision"
    assert found.position == 4
    assert found.error == pytest.approx(0.01, rel=1e-4)
    assert found.overall < found.error


def test_one_bad_token_among_many_is_not_diluted() -> None:
    reference = rows(1000)
    candidate = reference.clone()
    candidate[999] = -candidate[999]
    assert difference(candidate, reference).error == pytest.approx(2.0)


def test_a_vanishing_row_does_not_drown_the_rest() -> None:
    reference = rows()
    reference[3] = 0.0
    candidate = reference + 1e-7
    found = difference(candidate, reference)
    assert math.isfinite(found.error) and found.error < 1e-5


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("side", ["candidate", "reference"])
def test_not_finite_comes_before_any_number(bad: float, side: str) -> None:
    tensors = {"candidate": rows(), "reference": rows()}
    tensors[side][5, 0] = bad
    found = difference(tensors["candidate"], tensors["reference"])
    assert found.kind == "not-finite"
    assert found.position == 5
    assert side in found.message
    assert not found.error <= 1e9


def test_shape_comes_first() -> None:
    found = difference(rows(3), torch.full((4, 13), math.nan))
    assert found.kind == "shape" and "(3, 13)" in found.message and "(4, 13)" in found.message


def test_nothing_is_not_equal() -> None:
    assert difference(torch.empty(0, 4), torch.empty(0, 4)).kind == "empty"


@pytest.mark.parametrize("constant", [0.0, 1.0, 1e-30])
def test_watermark_a_constant_output_fails(constant: float) -> None:
    found = difference(torch.full((7, 13), constant), rows())
    assert found.kind == "stuck"
    assert not found.error <= 0.5


def test_rows_all_alike_are_stuck_even_when_near() -> None:
    reference = rows(1).repeat(6, 1) + 1e-5 * rows(6)
    candidate = reference[:1].repeat(6, 1)
    found = difference(candidate, reference)
    assert found.kind == "stuck"


def test_a_constant_reference_proves_nothing() -> None:
    assert difference(torch.ones(4, 5), torch.ones(4, 5)).kind == "constant"


def test_integers_compare_by_value() -> None:
    assert difference(torch.tensor([[1, 2], [3, 5]]), torch.tensor([[1, 2], [3, 4]])).max_abs == 1.0


def test_kl_divergence_of_a_known_pair() -> None:
    reference = torch.log(torch.tensor([[0.5, 0.5], [0.9, 0.1]]))
    candidate = torch.log(torch.tensor([[0.25, 0.75], [0.9, 0.1]]))
    expected = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert kl_divergence(candidate, reference).tolist() == pytest.approx([expected, 0.0], abs=1e-7)


def test_top_k_agreement_counts_shared_tokens() -> None:
    reference = torch.tensor([[4.0, 3.0, 2.0, 1.0]])
    assert top_k_agreement(reference, reference, 2) == 1.0
    assert top_k_agreement(torch.tensor([[4.0, 1.0, 3.0, 2.0]]), reference, 2) == 0.5
    assert top_k_agreement(-reference, reference, 2) == 0.0
    assert top_k_agreement(reference, reference, 10) == 1.0


def test_greedy_margin_is_the_gap_at_the_top() -> None:
    assert greedy_margin(torch.tensor([[1.0, 4.0, 2.5], [0.0, 0.0, -1.0]])).tolist() == [1.5, 0.0]
