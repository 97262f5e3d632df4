"""The noise floor: it follows a model's own amplification, and never lends tolerance to what is broken."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from day0.numerics.noise import FACTOR, LEAST_ULPS, MOST, noise_floor

EPS = torch.finfo(torch.float32).eps


def embeddings() -> Tensor:
    return torch.randn(20, 16, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("gain", [1.0, 100.0, 1e4])
def test_the_floor_grows_with_what_a_model_amplifies(gain: float) -> None:
    def forward(x: Tensor) -> dict[str, Tensor]:
        return {"kept": x, "grown": embeddings() + gain * (x - embeddings())}

    floor = noise_floor(forward, embeddings(), EPS)
    assert EPS * 0.5 < floor.worst["kept"] < EPS * 4
    assert gain * EPS * 0.5 < floor.worst["grown"] < gain * EPS * 4
    assert floor.tolerance("grown") >= FACTOR * floor.worst["grown"]


def test_the_tolerance_never_falls_below_a_few_roundings() -> None:
    floor = noise_floor(lambda x: {"fixed": torch.arange(12.0).reshape(3, 4)}, embeddings(), EPS)
    assert floor.tolerance("fixed") == LEAST_ULPS * EPS
    assert floor.tolerance("never seen") == LEAST_ULPS * EPS


def test_chaos_is_no_excuse() -> None:
    floor = noise_floor(lambda x: {"wild": embeddings() + 1e9 * (x - embeddings())}, embeddings(), EPS)
    assert floor.tolerance("wild") == MOST


def test_single_rows_that_flip_hand_over_to_the_median() -> None:
    def forward(x: Tensor) -> dict[str, Tensor]:
        flipped = x.clone()
        if not torch.equal(x, embeddings()):
            flipped[3] = -flipped[3]
        return {"routed": flipped, "plain": x}

    floor = noise_floor(forward, embeddings(), EPS)
    assert floor.allowance("routed").row == "median" and floor.allowance("routed").limit < 1e-5
    assert floor.allowance("plain").row == "worst"


def test_what_is_not_finite_gets_no_allowance() -> None:
    floor = noise_floor(lambda x: {"bad": x * float("nan")}, embeddings(), EPS)
    assert floor.worst["bad"] == 0.0


def test_the_same_twice() -> None:
    one, two = (noise_floor(lambda x: {"y": x.cumsum(0)}, embeddings(), EPS) for _ in range(2))
    assert one == two


def test_narrow_dtypes_are_moved_in_their_own_units() -> None:
    eps = torch.finfo(torch.bfloat16).eps
    floor = noise_floor(lambda x: {"y": x.float()}, embeddings().bfloat16(), eps)
    assert 0.3 * eps < floor.worst["y"] < 4 * eps
