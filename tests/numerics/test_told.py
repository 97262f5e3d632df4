"""Log probabilities that an endpoint tells of a few tokens, against logits: exact ones pass, and nothing else does."""

from __future__ import annotations

import pytest
import torch

from day0.errors import InputError
from day0.numerics.metrics import kl_divergence
from day0.numerics.told import Row, compare_told

LIMIT = 1e-4


def logits(rows: int = 6, vocab: int = 50) -> torch.Tensor:
    return 4 * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(7))


def told_of(rows: torch.Tensor, top_k: int = 5) -> dict[int, Row]:
    best = torch.log_softmax(rows.double(), -1).topk(top_k)
    return {
        row: Row(dict(zip(ids.tolist(), values.tolist(), strict=True)))
        for row, (values, ids) in enumerate(zip(best.values, best.indices, strict=True))
    }


def test_what_is_told_exactly_is_equal() -> None:
    report = compare_told(logits(), told_of(logits()), LIMIT)
    assert (report.verdict, report.told, report.top_k, report.agreement) == ("equal", 6, 5, 1.0)
    assert report.error is not None and report.error < 1e-12
    assert report.first is None


def test_a_row_beyond_the_tolerance_is_named() -> None:
    other = logits()
    other[4] = other[4] * 1.01
    report = compare_told(logits(), told_of(other), LIMIT)
    assert (report.verdict, report.deviating, report.position) == ("deviates", 1, 4)


@pytest.mark.parametrize("top_k", [2, 5, 50])
def test_the_divergence_is_a_lower_bound_and_exact_where_all_is_told(top_k: int) -> None:
    other = logits() + torch.randn(6, 50, generator=torch.Generator().manual_seed(8))
    whole = kl_divergence(other, logits())
    report = compare_told(logits(), told_of(other, top_k), LIMIT)
    assert report.worst_kl is not None and 0 < report.worst_kl <= float(whole.max()) + 1e-9
    if top_k == 50:
        assert report.worst_kl == pytest.approx(float(whole.max()), rel=1e-6)


@pytest.mark.parametrize("gap", [1e-5, 1.0], ids=["near tie", "fault"])
def test_the_first_other_token_is_a_near_tie_or_none(gap: float) -> None:
    one = logits()
    one[2, :] -= one[2].max()
    one[2, 7], one[2, 9] = gap, 0.0
    other = one.clone()
    other[2, 7], other[2, 9] = 0.0, gap
    report = compare_told(one, told_of(other), LIMIT)
    assert report.first is not None
    assert (report.first.position, report.first.reference, report.first.candidate) == (2, 7, 9)
    assert report.first.near_tie == (gap < 1e-3) and report.verdict == ("equal" if gap < 1e-3 else "deviates")


@pytest.mark.parametrize("lacking", [{}, {3: Row({5: -0.1})}, {3: Row({}, 5)}], ids=["no row", "one token", "no token"])
def test_what_is_not_told_never_passes(lacking: dict[int, Row]) -> None:
    rows = {row: tokens for row, tokens in told_of(logits()).items() if row != 3} | lacking
    assert compare_told(logits(), rows, LIMIT).verdict == "incomplete"
    assert compare_told(logits(), {}, LIMIT).verdict == "incomplete"
    assert compare_told(logits()[:0], {}, LIMIT).verdict == "incomplete"


def test_tokens_of_one_name_are_not_taken_for_others() -> None:
    """The likeliest was told under a name that several have: what is likeliest then is not known."""
    rows = told_of(logits())
    rows[0] = Row(dict(list(rows[0].tokens.items())[1:]), unnamed=1)
    report = compare_told(logits(), rows, LIMIT)
    assert (report.differing, report.agreement) == (0, 1.0)


def test_numbers_that_are_none_deviate() -> None:
    rows = told_of(logits())
    rows[1] = Row({token: float("nan") for token in rows[1].tokens})
    assert compare_told(logits(), rows, LIMIT).verdict == "deviates"


def test_a_token_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(InputError, match="up to 50"):
        compare_told(logits(), told_of(logits()) | {0: Row({50: -1.0, 1: -2.0})}, LIMIT)
