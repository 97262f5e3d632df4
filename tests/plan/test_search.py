from __future__ import annotations

import time
from typing import Any

import pytest

from day0.plan.accounting import ACCOUNTINGS
from day0.plan.layout import LayoutRequest
from day0.plan.search import rank_key, search, validate
from day0.profile.profile import ArchitectureProfile

from .conftest import profile_of

Profiles = dict[str, ArchitectureProfile]


@pytest.mark.parametrize("engine", sorted(ACCOUNTINGS))
def test_every_layout_found_uses_all_gpus_and_obeys(planner: Any, kimi_k3: ArchitectureProfile, engine: str) -> None:
    made = planner(kimi_k3, "h200:8x2", engine, context=65536)
    answer = search(made, 1000)
    assert answer.searched == len(answer.plans) + answer.refused
    assert len({plan.layout for plan in answer.plans}) == len(answer.plans)
    for plan in answer.plans:
        assert plan.layout.ranks == 16 and not made.check(plan.layout)


def test_plans_that_fit_come_first_and_the_fastest_before(planner: Any, kimi_k3: ArchitectureProfile) -> None:
    answer = search(planner(kimi_k3, "h200:8x2", "vllm", context=131072, concurrency=16), 1000)
    verdicts = [plan.fits for plan in answer.plans]
    assert verdicts == sorted(verdicts, key=lambda fits: not fits) and True in verdicts and False in verdicts
    speeds = [plan.estimate.tokens_per_s for plan in answer.plans if plan.fits and plan.estimate]
    assert speeds == sorted(speeds, reverse=True)
    assert answer.fits is True
    assert list(answer.plans) == sorted(answer.plans, key=rank_key)


def test_where_nothing_fits_the_nearest_come_with_reasons(planner: Any, kimi_k3: ArchitectureProfile) -> None:
    answer = search(planner(kimi_k3, "h100:8", "vllm", context=65536), 3)
    assert answer.fits is False and len(answer.plans) == 3
    assert all(plan.violations for plan in answer.plans)
    assert [plan.shortfall for plan in answer.plans] == sorted(plan.shortfall for plan in answer.plans)


def test_where_no_layout_is_legal_the_broken_rules_are_shown(planner: Any, profiles: Profiles) -> None:
    answer = search(planner(profiles["llama-3.1-8b"], "h100:37", "vllm", context=4096), 5)
    assert answer.fits is True, "37 replicas of the whole model are legal"
    answer = search(planner(profiles["llama-3.1-8b"], "h100:7", "vllm", context=4096, concurrency=1), 50)
    assert {plan.layout.label for plan in answer.plans} == {"dp 7", "pp 7"} and answer.refused == 1


def test_dense_models_are_not_given_experts_to_deal(planner: Any, profiles: Profiles) -> None:
    for engine in ACCOUNTINGS:
        answer = search(planner(profiles["llama-3.1-8b"], "h100:8", engine, context=4096), 1000)
        assert {plan.layout.ep for plan in answer.plans} == {1}


def test_sglang_looks_at_dp_attention_too(planner: Any, kimi_k3: ArchitectureProfile) -> None:
    answer = search(planner(kimi_k3, "b300:8", "sglang", context=65536), 1000)
    assert any(plan.layout.dp == 8 and plan.layout.tp == 8 for plan in answer.plans)


def test_one_layout_is_validated_as_asked(planner: Any, kimi_k3: ArchitectureProfile) -> None:
    answer = validate(planner(kimi_k3, "b300:8", "vllm", context=65536), LayoutRequest(ep=8))
    assert answer.searched == 1 and answer.refused == 0
    assert (answer.plans[0].layout.tp, answer.plans[0].layout.ep) == (8, 8)
    assert validate(planner(kimi_k3, "b300:8", "vllm", context=65536), LayoutRequest(tp=4)).refused == 1


def test_a_model_that_is_not_understood_is_answered_once(planner: Any) -> None:
    answer = search(planner(profile_of({"model_type": "brand_new"}), "h200:8", "vllm", context=4096), 5)
    assert answer.fits is None and len(answer.plans) == 1


def test_a_thousand_gpus_are_searched_in_seconds(planner: Any, kimi_k3: ArchitectureProfile) -> None:
    made = planner(kimi_k3, "h200:8x128", "sglang", context=131072, concurrency=512)
    started = time.process_time()
    answer = search(made, 5)
    assert answer.searched > 300
    assert time.process_time() - started < 10


def test_of_two_plans_that_fit_the_one_that_starts_is_first(planner: Any, kimi_k3: ArchitectureProfile) -> None:
    asked = planner(kimi_k3, "b300:8", "vllm", context=8192)
    best = search(asked, 1).plans[0].layout
    answer = search(asked, 1 << 30, obstacle=lambda layout, _: "no flag for it" if layout == best else None)
    fitting = [plan.layout for plan in answer.plans if plan.fits]
    assert len(fitting) > 1 and fitting[-1] == best
