"""The checklist held against itself: every check of a sound model must pass, and must fail on the fault made for it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from day0.checklist.checklist import Checklist, ChecklistRun, CheckResult, CheckSpec
from day0.checklist.probe_faults import FAULTS, check_with_fault
from day0.checklist.probe_table import PROBES
from day0.checklist.target import CheckContext

Outcome = Literal["found", "missed", "not-checked"]


@dataclass(frozen=True, slots=True)
class Trial:
    """One check: how it ended on the model as it is, and whether it found the fault that was put in.

    "not-checked" is a check that did not pass to begin with (it has nothing to lose), or that the target cannot run.
    """

    id: str
    phase: str
    fault: str
    outcome: Outcome
    sound: str
    broken: str | None
    message: str


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The document of `day0 run-checklist --self-test`, schema day0.self-test/1."""

    checklist: str
    model: str
    target: str
    trials: tuple[Trial, ...]
    schema: str = "day0.self-test/1"

    def count(self, outcome: Outcome) -> int:
        return sum(trial.outcome == outcome for trial in self.trials)


def self_test(
    checklist: Checklist, context: CheckContext, phases: Collection[str], on_start: Callable[[CheckSpec], None]
) -> tuple[Trial, ...]:
    """Try every check of these phases twice: as it is, and with its probe's fault in place."""
    trials = []
    for spec in checklist.checks:
        if spec.phase in phases:
            on_start(spec)
            trials.append(_try(spec, context))
    return tuple(trials)


def _try(spec: CheckSpec, context: CheckContext) -> Trial:
    sound, fault = _as_it_is(spec, context), FAULTS[spec.probe].what
    if sound.status not in ("pass", "warn"):
        return Trial(spec.id, spec.phase, fault, "not-checked", sound.status, None, sound.message)
    broken = check_with_fault(spec, context)
    outcome: Outcome = "found" if broken.status == "fail" else "missed"
    return Trial(spec.id, spec.phase, fault, outcome, sound.status, broken.status, broken.message)


def _as_it_is(spec: CheckSpec, context: CheckContext) -> CheckResult:
    run = ChecklistRun(Checklist("self-test", "", (spec,)), PROBES, context, lacks=context.target.lacks)
    run.run()
    return run.results[spec.id]
