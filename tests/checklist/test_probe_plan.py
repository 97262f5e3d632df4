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
