"""The answers to questions are exact: one token more, or one GPU less, and it does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from day0.errors import InputError
from day0.plan.layout import LayoutRequest
from day0.plan.questions import fewest_gpus, most_context
from day0.plan.search import GOALS, search
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.source.resolve import resolve

Profiles = dict[str, ArchitectureProfile]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "day0"])
@pytest.mark.parametrize("name", ["llama-3.1-8b", "kimi-k3"])
def test_one_token_more_than_the_most_does_not_fit(planner: Any, profiles: Profiles, name: str, engine: str) -> None:
    spec = {"llama-3.1-8b": "l40s:1", "kimi-k3": "b300:8"}[name]
    asked = planner(profiles[name], spec, engine, concurrency=24, prompt=512, decode=128)
    _, answer = most_context(asked, LayoutRequest(), 3)
    assert answer.plans
    for plan in answer.plans:
        if not plan.fits:
            continue
        assert plan.max_context is not None
        limit = profiles[name].max_position or 0
        longest = max(plan.max_context, asked.workload.prompt + asked.workload.decode)
        if longest < limit:
            longer = asked.with_context(longest + 4096 if longest + 4096 < limit else limit).plan(plan.layout)
            assert longer.fits is False


def test_the_longest_context_comes_first(planner: Any, profiles: Profiles) -> None:
    asked = planner(profiles["kimi-k3"], "b300:8x2", "vllm", concurrency=64, prompt=512, decode=128)
    found, answer = most_context(asked, LayoutRequest(), 5)
    lengths = [plan.max_context for plan in answer.plans]
    assert lengths == sorted(lengths, reverse=True) and answer.fits
    assert found.workload.context >= max(filter(None, lengths)) // 2


def test_fewer_gpus_than_the_fewest_do_not_fit(planner: Any, profiles: Profiles) -> None:
    asked = planner(profiles["kimi-k3"], "h200:8x8", "vllm", context=65536, concurrency=16)
    smaller, answer = fewest_gpus(asked, LayoutRequest(), 1)
    assert answer.fits and smaller.cluster.gpus == 16
    assert search(planner(profiles["kimi-k3"], "h200:8", "vllm", context=65536, concurrency=16), 1).fits is False
    one, alone = fewest_gpus(planner(profiles["qwen3-0.6b"], "h200:8", "vllm"), LayoutRequest(), 1)
    assert alone.fits and one.cluster.gpus == 1


def test_the_layout_is_the_answer_and_not_part_of_the_question(planner: Any, profiles: Profiles) -> None:
    with pytest.raises(InputError, match="chooses the layout itself"):
        fewest_gpus(planner(profiles["qwen3-0.6b"], "h200:8"), LayoutRequest(tp=8), 1)


@pytest.mark.parametrize("goal", GOALS)
def test_plans_come_in_the_order_of_the_goal(planner: Any, profiles: Profiles, goal: str) -> None:
    plans = search(planner(profiles["qwen3-30b-a3b"], "h200:8", "vllm", context=32768), 50, goal).plans
    scores = [GOALS[goal](plan) for plan in plans if plan.fits]
    assert len(scores) > 3 and scores == sorted(scores)


def test_where_no_part_fits_for_sure_the_smallest_unsure_one_is_shown(planner: Any) -> None:
    """Drafts of a full batch withhold the verdict on every part that holds the weights."""
    profile = read_profile(resolve("recipe:deepseek-r1"))
    asked = planner(profile, "h200:8x2", "vllm", context=8192, speculate=True, drafted_tokens=7)
    smaller, answer = fewest_gpus(asked, LayoutRequest(), 1)
    assert answer.fits is None and smaller.cluster.gpus == 8
