"""The checklist: what to check, what came of it, and the verdict.

A status is a function of what was measured and the limits alone, so that stored evidence can be judged again.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from day0.checklist.gate import ROUNDS, ceiling
from day0.errors import CannotSay, Day0Error, InputError

Status = Literal["pass", "fail", "warn", "skip", "na", "error"]
Verdict = Literal["ready", "not-ready", "incomplete"]
Limits = Mapping[str, Mapping[str, Any]]

PHASES = ("loading", "startup", "text", "multimodal", "numerics", "stability", "performance")

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")

_BLOCKING: tuple[Status, ...] = ("fail", "error", "skip")

BOUNDS: Mapping[str, tuple[Status, str]] = {
    "max": ("fail", "at most"),
    "min": ("fail", "at least"),
    "equals": ("fail", "exactly"),
    "warn_max": ("warn", "at most"),
    "warn_min": ("warn", "at least"),
}
"""What a bound means for a value beyond it, and how it reads. Those of a baseline are turned into `max` first."""


@dataclass(frozen=True, slots=True)
class CheckSpec:
    """One entry of a checklist: which probe to run, with which parameters, and the limits on what it measures."""

    id: str
    phase: str
    title: str
    probe: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=dict)
    required: bool = True


@dataclass(frozen=True, slots=True)
class Checklist:
    """Checks in the order they run: by phase, then as written."""

    name: str
    title: str
    checks: tuple[CheckSpec, ...]


@dataclass(frozen=True, slots=True)
class Where:
    """Where in the model a check found something; `length` is a number of tokens."""

    layer: int | None = None
    operator: str | None = None
    tensor: str | None = None
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What a probe saw. `inspected` counts the items behind it; with none, nothing was checked."""

    inspected: int
    values: Mapping[str, Any]
    where: Where | None = None
    message: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class NotChecked:
    """Why a probe measured nothing: the target cannot ("skip"), or the model has no such part ("na")."""

    status: Literal["skip", "na"]
    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Broken:
    """Why a check gave no answer at all: its own defect, or one of the input or the machine."""

    reason: str
    hint: str = ""


Outcome = Measured | NotChecked
Seen = Measured | NotChecked | Broken


@dataclass(frozen=True, slots=True)
class Probe:
    """A function that measures; its keyword-only arguments are the parameters a checklist may set.

    `needs` are capabilities of the target without which the probe is skipped.
    """

    run: Callable[..., Outcome]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check, as the contract prints it."""

    id: str
    title: str
    status: Status
    required: bool
    measured: Mapping[str, Any] = field(default_factory=dict)
    limit: Limits = field(default_factory=dict)
    where: Where | None = None
    message: str = ""
    hint: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PhaseResult:
    name: str
    status: Status
    checks: tuple[CheckResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistResult:
    """The document of `day0 run-checklist`, schema day0.checklist/1.

    `limits` say in sentences what is weaker about a model that transformers runs. `command` is the command line,
    `inputs` the model's files by hash, `coverage` operators by state, `memory` the host memory of this process over
    the run (`seconds` since its start, `bytes`).
    """

    schema: str = "day0.checklist/1"
    verdict: Verdict
    model: Mapping[str, Any]
    target: str
    reference: str
    checklist: str
    environment: Mapping[str, Any]
    seed: int
    phases: tuple[PhaseResult, ...]
    baseline: Mapping[str, Any] | None
    interrupted: bool
    seconds: float
    limits: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    coverage: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)

    def checks(self) -> Iterable[CheckResult]:
        for phase in self.phases:
            yield from phase.checks


def judge(measured: Mapping[str, Any], limits: Limits) -> tuple[Status, str]:
    """Status of measured values against limits, and which limit decided it (empty for a pass).

    NaN and null lie beyond every limit. Raises InputError for a limit on something that was not measured.
    """
    warning = ""
    for name, bounds in limits.items():
        if name not in measured:
            hint = f"measured are {', '.join(measured)}"
            raise InputError("has a limit, but the probe does not measure it", where=name, hint=hint)
        for bound, wanted in bounds.items():
            if bound not in BOUNDS or _holds(bound, measured[name], wanted):
                continue
            status, words = BOUNDS[bound]
            text = f"{name} is {_shown(measured[name])}, wanted {words} {_shown(wanted)}"
            if status == "fail":
                return "fail", text
            warning = warning or text
    return ("warn", warning) if warning else ("pass", "")


def _holds(bound: str, value: Any, wanted: Any) -> bool:
    if bound == "equals":
        return type(value) is type(wanted) and bool(value == wanted)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        return False
    return bool(value <= wanted) if bound.endswith("max") else bool(value >= wanted)


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def with_baseline(limits: Limits, before: Mapping[str, Any] | None, now: Mapping[str, Any] | None = None) -> Limits:
    """Limits with every bound of a baseline joined by the `max` it comes to, where there is a baseline.

    `max_of_baseline: r` is r times its value; `slowdown_of_baseline: s` is what the noise of the rounds of both runs,
    of which `now` has the later, leaves room for while a slowdown of the share s is still found (gate.py).
    """
    if before is None:
        return limits
    resolved: dict[str, Mapping[str, Any]] = {}
    for name, bounds in limits.items():
        slowdown = bounds.get("slowdown_of_baseline")
        if slowdown is not None:
            most = ceiling(_rounds(before, name), _rounds(now or {}, name), slowdown)
            bounds = {**bounds, "max": min(most, bounds.get("max", most)), "baseline": before.get(name)}
        ratio = bounds.get("max_of_baseline")
        if ratio is None:
            resolved[name] = bounds
        elif isinstance(before.get(name), bool) or not isinstance(before.get(name), (int, float)):
            raise CannotSay(f"the baseline has no number for {name}", hint="write a new one with --save-baseline")
        else:
            most = ratio * before[name]
            resolved[name] = {**bounds, "max": min(most, bounds.get("max", most)), "baseline": before[name]}
    return resolved


def _rounds(measured: Mapping[str, Any], name: str) -> tuple[float, ...]:
    """The figures of a measurement's rounds; none where it has none."""
    values = measured.get(name + ROUNDS)
    return tuple(map(float, values)) if isinstance(values, (list, tuple)) else ()


def phase_status(checks: Sequence[CheckResult]) -> Status:
    """The worst of a phase: required failures first, then what was not checked, then warnings."""
    required = {check.status for check in checks if check.required}
    for status in _BLOCKING:
        if status in required:
            return status
    statuses = {check.status for check in checks}
    if statuses & {"fail", "error", "warn"}:
        return "warn"
    if "pass" in statuses:
        return "pass"
    return "skip" if "skip" in statuses else "na"


def verdict(phases: Sequence[PhaseResult]) -> Verdict:
    """`ready` needs every required check passed (a warning counts) or `na`, and at least one of them passed."""
    required = [check.status for phase in phases for check in phase.checks if check.required]
    if "fail" in required:
        return "not-ready"
    if "skip" in required or "error" in required or not {"pass", "warn"} & set(required):
        return "incomplete"
    return "ready"


def conclude(spec: CheckSpec, seen: Seen, before: Mapping[str, Any] | None = None) -> CheckResult:
    """What a check comes to: follows from what was seen, its limits and the baseline's measurements, nothing else."""
    if isinstance(seen, Broken):
        return replace(_blank(spec, "error"), message=seen.reason, hint=seen.hint)
    if isinstance(seen, NotChecked):
        return replace(_blank(spec, seen.status), message=seen.reason, hint=seen.hint)
    measured = {"inspected": seen.inspected, **seen.values}
    if seen.inspected < 1:
        reason = seen.message or "nothing was there to inspect"
        return replace(_blank(spec, "skip"), message=reason, measured=measured)
    try:
        limits = with_baseline(spec.limits, before, measured)
        status, reason = judge(measured, limits)
    except CannotSay as fault:
        return replace(_blank(spec, "skip"), message=str(fault), hint=fault.hint)
    except InputError as fault:
        return replace(_blank(spec, "error"), message=str(fault), hint=fault.hint)
    return CheckResult(
        id=spec.id,
        title=spec.title,
        status=status,
        required=spec.required,
        measured=measured,
        limit=limits,
        where=seen.where,
        message="; ".join(part for part in (reason, seen.message) if part),
        hint="" if status == "pass" else seen.hint,
    )


def by_phase(results: Iterable[tuple[CheckSpec, CheckResult]]) -> tuple[PhaseResult, ...]:
    """Results gathered into phases, in the order of the contract."""
    pairs = list(results)
    gathered = ((name, tuple(result for spec, result in pairs if spec.phase == name)) for name in PHASES)
    return tuple(PhaseResult(name, phase_status(checks), checks) for name, checks in gathered if checks)


class ChecklistRun:
    """Runs the checks of a list in order, each on its own: one that breaks does not stop the others.

    `lacks(need)` says why the target cannot give a capability, or None. `before` holds a baseline's measurements
    by check id. Results gather in `results`, and what they follow from in `seen`, also when a run is interrupted.
    """

    def __init__(
        self,
        checklist: Checklist,
        probes: Mapping[str, Probe],
        context: object,
        *,
        lacks: Callable[[str], str | None],
        phases: Sequence[str] = PHASES,
        before: Mapping[str, Mapping[str, Any]] | None = None,
        on_start: Callable[[CheckSpec], None] | None = None,
        on_result: Callable[[CheckSpec, CheckResult], None] | None = None,
    ) -> None:
        self.checklist = checklist
        self.probes = probes
        self.context = context
        self.lacks = lacks
        self.phases = phases
        self.before = before
        self.on_start = on_start
        self.on_result = on_result
        self.interrupted = False
        self.results: dict[str, CheckResult] = {}
        self.seen: dict[str, Seen] = {}

    def run(self) -> tuple[PhaseResult, ...]:
        """Results by phase. After Ctrl-C the rest is skipped with that reason and `interrupted` is set."""
        for spec in self.checklist.checks:
            if self.interrupted:
                self._keep(spec, NotChecked("skip", "interrupted before this check was done"))
                continue
            if spec.phase not in self.phases:
                self._keep(spec, NotChecked("skip", "its phase was not asked for (--phase)"))
                continue
            if self.on_start:
                self.on_start(spec)
            started = time.perf_counter()
            try:
                seen = self._see(spec)
            except KeyboardInterrupt:
                self.interrupted = True
                seen = NotChecked("skip", "interrupted while this check ran")
            self._keep(spec, seen, time.perf_counter() - started)
            if self.on_result:
                self.on_result(spec, self.results[spec.id])
        return by_phase((spec, self.results[spec.id]) for spec in self.checklist.checks)

    def _keep(self, spec: CheckSpec, seen: Seen, seconds: float = 0.0) -> None:
        self.seen[spec.id] = seen
        self.results[spec.id] = replace(conclude(spec, seen, self.before_of(spec)), seconds=seconds)

    def before_of(self, spec: CheckSpec) -> Mapping[str, Any] | None:
        """The baseline's measurements of a check; None without a baseline, or where it has none of this check."""
        return None if self.before is None else self.before.get(spec.id)

    def _see(self, spec: CheckSpec) -> Seen:
        try:
            return _printable(self._measure(spec))
        except CannotSay as fault:
            return NotChecked("skip", plain(str(fault)), plain(fault.hint))
        except Day0Error as fault:
            return Broken(plain(str(fault)), plain(fault.hint))
        except Exception as fault:  # a check that breaks must not take the others with it
            reason = f"the check broke: {type(fault).__name__}: {fault}"
            return Broken(plain(reason), "a defect of day0, not of the model")

    def _measure(self, spec: CheckSpec) -> Outcome:
        probe = self.probes[spec.probe]
        for need in probe.needs:
            reason = self.lacks(need)
            if reason is not None:
                return NotChecked("skip", reason)
        return probe.run(self.context, **spec.parameters)


def plain(value: Any) -> Any:
    """Texts without control characters and lone surrogates: strangers wrote some of them."""
    if isinstance(value, str):
        return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, Mapping):
        return {plain(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return value


def _printable(outcome: Outcome) -> Outcome:
    if isinstance(outcome, NotChecked):
        return replace(outcome, reason=plain(outcome.reason), hint=plain(outcome.hint))
    values, message, hint = plain(outcome.values), plain(outcome.message), plain(outcome.hint)
    return replace(outcome, values=values, message=message, hint=hint)


def _blank(spec: CheckSpec, status: Status) -> CheckResult:
    return CheckResult(id=spec.id, title=spec.title, status=status, required=spec.required, limit=spec.limits)
