"""Kinds of mistakes: each is told from a tensor that was changed in just that way, and noise from all of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from day0.numerics.kinds import guess_kind

TOLERANCE = 1e-6


def sound(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(4))


WANTED = sound(12, 4, 8)
BEFORE = torch.randn(12, 4, 8, generator=torch.Generator().manual_seed(9))
OTHERS = {"layers.1.before": BEFORE}


def rows(*order: int) -> Tensor:
    return WANTED[list(order)]


def turned(x: Tensor) -> Tensor:
    angles = torch.arange(len(x))[:, None, None] + torch.rand(4, generator=torch.Generator().manual_seed(1))
    one, two = x[..., :4], x[..., 4:]
    return torch.cat((one * angles.cos() - two * angles.sin(), one * angles.sin() + two * angles.cos()), dim=-1)


def fading(x: Tensor) -> Tensor:
    return x + BEFORE * 10.0 ** -torch.arange(12.0)[:, None, None]


CASES: dict[str, tuple[Callable[[], Tensor], str]] = {
    "negated": (lambda: -WANTED, "sign"),
    "all one factor": (lambda: WANTED * 1.01, "scale"),
    "a factor for each channel": (lambda: WANTED * (2 + sound(4, 8)), "scale"),
    "a factor for each row": (lambda: WANTED * (2 + sound(12, 1, 1)), "scale"),
    "a factor for each row and channel": (lambda: WANTED * (3 + sound(12, 1, 1)) * (3 + sound(4, 8)), "scale"),
    "a factor for each head of each row": (lambda: WANTED * (3 + sound(12, 4, 1)), "scale"),
    "zeros": (lambda: torch.zeros_like(WANTED), "missing term"),
    "the same vector missing": (lambda: WANTED - sound(4, 8), "missing term"),
    "a term missing": (lambda: WANTED - BEFORE, "missing term"),
    "what came before": (lambda: BEFORE, "missing term"),
    "rows in a circle": (lambda: WANTED.roll(1, dims=0), "off by one"),
    "a run one row late": (lambda: rows(0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 10, 11), "off by one"),
    "two blocks exchanged": (lambda: rows(0, 1, 8, 9, 10, 2, 6, 7, 3, 4, 5, 11), "permutation"),
    "rows of others twice": (lambda: rows(0, 1, 2, 7, 3, 9, 6, 7, 3, 9, 10, 11), "stale"),
    "all rows the first": (lambda: rows(*[0] * 12), "stale"),
    "channels exchanged": (lambda: WANTED.flip(-1), "permutation"),
    "turned": (lambda: turned(WANTED), "rotary layout"),
    "fading from the start": (lambda: fading(WANTED), "stale"),
    "rounded": (lambda: WANTED.bfloat16().float(), "precision only"),
    "not finite": (lambda: WANTED / torch.where(WANTED > 2, 0.0, 1.0), "NaN origin"),
    "another tensor": (lambda: sound(12, 4, 8).cumsum(0), "other"),
    "a huge other tensor": (lambda: 1e30 * sound(12, 4, 8).cumsum(0), "other"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_kind_is_told(case: str) -> None:
    make, kind = CASES[case]
    guess = guess_kind("mixer.q", make(), WANTED, OTHERS, TOLERANCE, inputs={"layers.1.before"})
    assert guess.kind == kind, guess


def test_a_tensor_of_another_place_is_stale_unless_it_came_before() -> None:
    assert guess_kind("mixer_out", BEFORE, WANTED, OTHERS, TOLERANCE).kind == "stale"


def test_lengths_that_are_kept_speak_of_rotation_only_behind_one() -> None:
    assert guess_kind("ffn_out", turned(WANTED), WANTED, {}, TOLERANCE).kind == "other"


def test_a_square_matrix_the_other_way_round() -> None:
    square = sound(3, 8, 8)
    assert guess_kind("mixer.state", square.mT, square, {}, TOLERANCE).kind == "transposed"
    assert guess_kind("mixer.state", sound(8, 3), sound(3, 8), {}, TOLERANCE).kind == "transposed"
    assert guess_kind("mixer.state", sound(8, 5), sound(3, 8), {}, TOLERANCE).kind == "shape"
