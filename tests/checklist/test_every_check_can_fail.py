"""Every check of every shipped checklist passes on a sound model and fails on the fault made for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from day0.checklist.checklist import Checklist, ChecklistRun, CheckSpec
from day0.checklist.probe_faults import FAULTS, check_with_fault
from day0.checklist.probe_table import PROBES
from day0.checklist.read import read_checklist, shipped_checklists
from day0.checklist.target import CheckContext

Contexts = Callable[[str], CheckContext]

CHECKS = [
    pytest.param(name, spec, id=f"{name}-{spec.id}", marks=[pytest.mark.slow] if name == "full" else [])
    for name, path in shipped_checklists().items()
    for spec in read_checklist(path, PROBES).checks
]
NEEDS_KIMI = ("loading.packed", "multimodal.")


def context_for(name: str, spec: CheckSpec, contexts: Contexts) -> CheckContext:
    """The cheapest sound context in which the check is not `na`."""
    if name == "endpoint":
        return contexts("endpoint")
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
    assert used == set(PROBES)


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
