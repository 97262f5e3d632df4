"""Four processes give what one gives, in every grid: slices, lots of experts, stages, replicas and their products."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from day0.errors import InputError
from day0.runtime.engine.lead import LeadingEngine, World

Check = Callable[..., LeadingEngine]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    started = World.start(4, "cpu")
    yield started
    started.stop()


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("llama-3.1-8b", {"tp": 4}),  # two ranks keep the same key/value head
        ("llama-3.1-8b", {"tp": 2, "pp": 2}),
        ("qwen3-30b-a3b", {"tp": 4, "ep": 4}),
        ("qwen3-30b-a3b", {"tp": 2, "dp": 2, "ep": 2}),  # a lot of experts is cut between two ranks
        ("qwen3-30b-a3b", {"dp": 4, "ep": 4}),
        ("gpt_oss", {"tp": 4, "ep": 2}),
        ("gpt_oss", {"dp": 2, "pp": 2, "ep": 2}),
        ("kimi-k3", {"tp": 2, "pp": 2, "ep": 2}),
        ("deepseek-r1", {"dp": 4, "ep": 4}),
        ("mxfp4", {"dp": 2, "tp": 2, "ep": 4}),
        ("minimax_m3", {"tp": 4}),  # two ranks keep the same index head
        ("minimax_m3", {"tp": 2, "pp": 2}),
    ],
    ids=str,
)
def test_four_ranks_are_one(world: World, check: Check, name: str, layout: dict[str, int]) -> None:
    check(world, name, **layout)


def test_heads_that_do_not_divide_are_refused(world: World, check: Check) -> None:
    with pytest.raises(InputError, match="gqa-heads: 4 gqa heads do not divide by 3 ranks"):
        check(world, "llama-3.1-8b", tp=3)
