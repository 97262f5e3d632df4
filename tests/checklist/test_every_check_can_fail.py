"""Every check of every shipped checklist passes on a sound model and fails on the fault made for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from day0.checklist.checklist import Checklist, ChecklistRun, CheckSpec
from day0.checklist.probe_faults import FAULTS, check_with_fault
from day0.checklist.probe_table import PROBES
from day0.checklist.read import read_checklist, shipped_checklists
from day0.checklist.target import Ask, CheckContext

Contexts = Callable[[str], CheckContext]


def _takes_long(name: str, spec: CheckSpec) -> bool:
    return name == "full" or spec.probe == "wire.tools" or (name == "default" and spec.probe == "numerics.invariance")


CHECKS = [
    pytest.param(name, spec, id=f"{name}-{spec.id}", marks=[pytest.mark.slow] if _takes_long(name, spec) else [])
    for name, path in shipped_checklists().items()
    for spec in read_checklist(path, PROBES).checks
]
FOR_OWN_LISTS = {"text.expected"}
"""Probes that need to know their model."""
NEEDS_KIMI = ("loading.packed", "multimodal.")


def context_for(name: str, spec: CheckSpec, contexts: Contexts) -> CheckContext:
    """The cheapest sound context in which the check is not `na`."""
    if name == "endpoint":
        return contexts("calling_endpoint" if spec.probe == "wire.tools" else "endpoint")
    if spec.probe == "startup.plan":
        return contexts("planned_llama")
    return contexts("kimi_k3" if spec.probe.startswith(NEEDS_KIMI) else "llama")


@pytest.mark.parametrize(("name", "spec"), CHECKS)
def test_fails_on_its_fault(name: str, spec: CheckSpec, contexts: Contexts) -> None:
    found = check_with_fault(spec, context_for(name, spec, contexts))
    assert found.status == "fail", f"{FAULTS[spec.probe].what}: {found.status}, {found.message}, {found.measured}"
    assert found.message


@pytest.mark.parametrize(("name", "spec"), CHECKS)
def test_passes_on_a_sound_model(name: str, spec: CheckSpec, contexts: Contexts) -> None:
    context = context_for(name, spec, contexts)
    run = ChecklistRun(Checklist("one", "", (spec,)), PROBES, context, lacks=context.target.lacks)
    run.run()
    found = run.results[spec.id]
    assert found.status in ("pass", "warn"), f"{found.status}, {found.message}, {found.measured}"
    assert found.measured["inspected"] > 0


def test_every_probe_has_a_fault_and_every_fault_a_probe() -> None:
    assert set(FAULTS) == set(PROBES)


def test_every_probe_is_in_some_shipped_checklist() -> None:
    used = {spec.probe for path in shipped_checklists().values() for spec in read_checklist(path, PROBES).checks}
    assert used == set(PROBES) - FOR_OWN_LISTS


def test_an_expected_text_is_missed_where_it_is_not(contexts: Contexts) -> None:
    context = contexts("llama")
    (answer,) = context.target.ask([Ask("hello", 32, ignore_eos=False)], concurrency=1)
    limits = {"found": {"equals": True}}
    spec = CheckSpec("x", "text", "x", "text.expected", {"prompt": "hello", "contains": answer.text[:3]}, limits)
    run = ChecklistRun(Checklist("one", "", (spec,)), PROBES, context, lacks=context.target.lacks)
    run.run()
    assert run.results["x"].status == "pass"
    assert check_with_fault(spec, context).status == "fail"


def test_the_docs_name_every_probe_and_its_fault() -> None:
    text = (Path(__file__).parents[2] / "docs" / "checklist.md").read_text()
    rows = re.findall(r"^\| `([a-z]+\.[a-z_]+)` \|", text, re.MULTILINE)
    assert rows == list(PROBES)


def test_every_check_has_a_limit_and_phases_have_two_checks() -> None:
    for path in shipped_checklists().values():
        checklist = read_checklist(path, PROBES)
        assert all(spec.limits for spec in checklist.checks)
        if path.stem != "endpoint":
            for phase in {spec.phase for spec in checklist.checks}:
                assert sum(spec.phase == phase for spec in checklist.checks) >= 2, f"{path.stem}: {phase}"


@pytest.mark.parametrize("layer", [0])
def test_swapped_layers_are_named(layer: int, contexts: Contexts) -> None:
    spec = next(spec for _, spec in (param.values for param in CHECKS) if spec.probe == "numerics.reference")
    found = check_with_fault(spec, contexts("llama"))
    assert found.where is not None and found.where.layer == layer
    assert found.where.tensor is not None and found.where.tensor.startswith(f"layers.{layer}.")
