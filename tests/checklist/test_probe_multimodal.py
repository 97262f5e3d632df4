"""The checks of images on towers that are built of parts: they pass, and each finds its fault there too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from day0.checklist.checklist import Checklist, ChecklistRun, CheckSpec
from day0.checklist.probe_faults import check_with_fault
from day0.checklist.probe_table import PROBES
from day0.checklist.read import read_checklist, shipped_checklists
from day0.checklist.target import CheckContext

CHECKS = [spec for spec in read_checklist(shipped_checklists()["default"], PROBES).checks if spec.phase == "multimodal"]
RECIPES = ("kimi-k2.5", "qwen3-vl-30b-a3b")


@pytest.fixture(scope="module", params=RECIPES)
def context(
    request: pytest.FixtureRequest, tiny: Callable[[str], Path], context_over: Callable[[Path], CheckContext]
) -> CheckContext:
    return context_over(tiny(request.param))


@pytest.mark.parametrize("spec", CHECKS, ids=lambda spec: spec.id)
def test_passes_and_finds_its_fault(spec: CheckSpec, context: CheckContext) -> None:
    run = ChecklistRun(Checklist("one", "", (spec,)), PROBES, context, lacks=context.target.lacks)
    run.run()
    found = run.results[spec.id]
    assert found.status == "pass", f"{found.status}, {found.message}, {found.measured}"
    assert found.measured["inspected"] > 0
    assert check_with_fault(spec, context).status == "fail"
