"""What makes a first answer one of a working model."""

from __future__ import annotations

import math

import pytest

from day0.engines.first_answer import implausible

GOOD = ([-0.27, -0.39], [{" Paris": -0.27, " the": -2.7}, {".": -0.39, ",": -1.6}])


def test_a_sensible_answer_has_no_fault():
    assert implausible(*GOOD) is None
    assert implausible([-0.2], []) is None


@pytest.mark.parametrize(
    ("logprobs", "tops", "said"),
    [
        ([math.nan], [], "is nan"),
        ([-0.1, -math.inf], [], "token 1 is -inf"),
        ([0.2], [], "above 0"),
        ([-1.0], [{"a": -1.0, "b": math.nan}], "not finite"),
        ([-0.1], [{"a": -0.1, "b": -0.1}], "more than 1"),
        ([-2.0], [{"a": -0.5, "b": -2.0}], "not the likeliest"),
        ([-10.8], [{"a": -10.8, "b": -10.8}], "equally likely"),
    ],
)
def test_an_answer_of_a_broken_model_is_named(logprobs, tops, said):
    assert said in (implausible(logprobs, tops) or "")
