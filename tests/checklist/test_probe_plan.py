"""What a plan foresees is what the runtime holds, byte by byte, for each kind of layer and cache there is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from day0.checklist.checklist import Measured
from day0.checklist.probe_plan import NO_PLAN, plan
from day0.checklist.target import CheckContext

from .conftest import planned_context


def test_without_a_plan_there_is_nothing_to_hold(llama: CheckContext) -> None:
    assert plan(llama) is NO_PLAN


@pytest.mark.parametrize("recipe", ["llama-3.1-8b", "qwen3-30b-a3b", "kimi-k3", "deepseek-r1", "glm-5.2"])
def test_plan_and_runtime_agree(recipe: str, tiny: Callable[[str], Path]) -> None:
    found = plan(planned_context(tiny(recipe)))
    assert isinstance(found, Measured)
    held, planned = found.values["allocated_bytes"], found.values["plan_bytes"]
    # the bias of a router is held in float32, whatever it is stored in
    assert held.pop("weights") == pytest.approx(planned.pop("weights"), rel=1e-4)
    assert held == planned and planned["kv_pool"] > 0


@pytest.mark.parametrize("recipe", ["llama-3.1-8b", "qwen3-30b-a3b", "kimi-k3", "gpt-oss-120b"])
@pytest.mark.parametrize("budget", [0, 150_000, 1 << 30])
def test_layers_that_come_and_go_are_planned_as_held(recipe: str, budget: int, tiny: Callable[[str], Path]) -> None:
    """Nothing, some layers, or all of them and their experts stay beside the ends."""
    found = plan(planned_context(tiny(recipe), offload="disk", weight_budget=budget))
    assert isinstance(found, Measured)
    assert found.values["plan_error"] < 1e-3, found.values


def test_experts_that_are_kept_as_numbers_are_part_of_the_workspace(tiny: Callable[[str], Path]) -> None:
    plain, kept = (plan(planned_context(tiny("gpt-oss-120b"), expert_cache_bytes=size)) for size in (0, 300_000))
    assert isinstance(plain, Measured) and isinstance(kept, Measured)
    grown = kept.values["plan_bytes"]["workspace"] - plain.values["plan_bytes"]["workspace"]
    assert 0 < grown <= 300_000 and kept.values["plan_error"] < 1e-3


@pytest.mark.parametrize("recipe", ["kimi-k3", "gpt-oss-120b"])
@pytest.mark.parametrize(
    "demand", [{}, {"expert_cache_bytes": 300_000}, {"offload": "disk", "weight_budget": 1 << 30}], ids=str
)
def test_experts_through_fp8_are_planned_as_held(
    recipe: str, demand: dict[str, int | str], tiny: Callable[[str], Path]
) -> None:
    found = plan(planned_context(tiny(recipe), expert_dtype="fp8", **demand))
    assert isinstance(found, Measured)
    assert found.values["plan_bytes"]["workspace"] == found.values["allocated_bytes"]["workspace"] > 0
    assert found.values["plan_error"] < 1e-3, found.values
