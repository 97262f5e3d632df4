"""What every verdict of a run follows from, in a form that can be stored and judged again without the model."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from day0.checklist.checklist import (
    Broken,
    ChecklistResult,
    ChecklistRun,
    CheckSpec,
    Measured,
    NotChecked,
    Seen,
    by_phase,
    conclude,
    verdict,
)
from day0.checklist.figures import percentile

SCHEMA = "day0.evidence/1"
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""JSON has no such numbers, and a limit reads them apart: stored as these texts."""
CLOSE = 1e-9  # relative: sums of floats taken in another order


@dataclass(frozen=True, slots=True)
class Record:
    """One check: what was asked, what was seen (one of three), and what a baseline had before."""

    spec: CheckSpec
    measured: Measured | None = None
    not_checked: NotChecked | None = None
    broken: Broken | None = None
    before: Mapping[str, Any] | None = None
    seconds: float = 0.0

    def seen(self) -> Seen | None:
        """What was seen; None where the record says nothing, or two things at once."""
        given = [entry for entry in (self.measured, self.not_checked, self.broken) if entry is not None]
        return given[0] if len(given) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The document evidence.json. `facts` are the fields of the result that are no judgement: model, machine, seed."""

    schema: str = SCHEMA
    facts: Mapping[str, Any] = field(default_factory=dict)
    records: tuple[Record, ...]


def evidence_of(run: ChecklistRun, result: ChecklistResult) -> Evidence:
    """The evidence of a run that has ended."""
    seconds = {check.id: check.seconds for check in result.checks()}
    records = []
    for spec in run.checklist.checks:
        seen = run.seen[spec.id]
        record = Record(
            spec,
            measured=seen if isinstance(seen, Measured) else None,
            not_checked=seen if isinstance(seen, NotChecked) else None,
            broken=seen if isinstance(seen, Broken) else None,
            before=run.before_of(spec),
            seconds=seconds[spec.id],
        )
        records.append(record)
    judged = ("schema", "verdict", "phases")
    facts = {name: getattr(result, name) for name in ChecklistResult.__slots__ if name not in judged}
    return Evidence(facts=facts, records=tuple(records))


def replay(evidence: Evidence) -> ChecklistResult:
    """The result that the evidence gives: every status, count and the verdict worked out anew."""
    pairs = []
    for record in evidence.records:
        seen = record.seen() or Broken("the record says not one thing that was seen")
        concluded = conclude(record.spec, seen, record.before)
        pairs.append((record.spec, replace(concluded, seconds=record.seconds)))
    phases = by_phase(pairs)
    return ChecklistResult(verdict=verdict(phases), phases=phases, **evidence.facts)


def to_json(evidence: Evidence) -> bytes:
    """The document, with numbers that JSON lacks as texts."""
    return msgspec.json.format(msgspec.json.encode(_spelled(msgspec.to_builtins(evidence))), indent=1) + b"\n"


def from_json(data: bytes) -> Evidence:
    """Read the document. Raises msgspec.DecodeError (or its ValidationError) where it is none."""
    return msgspec.convert(_read(msgspec.json.decode(data)), Evidence)


def _spelled(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return next(name for name, number in NOT_FINITE.items() if str(number) == str(value))
    if isinstance(value, dict):
        return {name: _spelled(entry) for name, entry in value.items()}
    return [_spelled(entry) for entry in value] if isinstance(value, list | tuple) else value


def _read(value: Any) -> Any:
    if isinstance(value, str):
        return NOT_FINITE.get(value, value)
    if isinstance(value, dict):
        return {name: _read(entry) for name, entry in value.items()}
    return [_read(entry) for entry in value] if isinstance(value, list) else value


def disagreements(values: Mapping[str, Any]) -> list[str]:
    """Measured figures that do not follow from the samples stored beside them, each said in a sentence."""
    found: list[str] = []
    for samples, figures in FIGURES.items():
        if isinstance(values.get(samples), Sequence) and values[samples]:
            found += _differing(values, {name: figure(values[samples]) for name, figure in figures.items()}, samples)
    errors, tolerances = values.get("errors"), values.get("tolerances")
    if isinstance(errors, Mapping) and isinstance(tolerances, Mapping) and errors:
        found += _differing(values, _of_errors(errors, tolerances, values), "errors and tolerances")
    return found


FIGURES: Mapping[str, Mapping[str, Callable[[Sequence[float]], float]]] = {
    "ttft_samples_ms": {"ttft_ms": statistics.median, "ttft_p95_ms": lambda samples: percentile(samples, 0.95)},
    "tpot_samples_ms": {"tpot_ms": statistics.median, "tpot_p95_ms": lambda samples: percentile(samples, 0.95)},
}
"""Figures by the samples they are drawn from."""


def _of_errors(
    errors: Mapping[str, Any], tolerances: Mapping[str, Any], values: Mapping[str, Any]
) -> dict[str, float | None]:
    """The worst error, and the worst as a multiple of its tolerance, unless that was declared no number."""
    known = {name: error for name, error in errors.items() if error is not None}
    figures: dict[str, float | None] = {"worst_error": max(known.values(), default=None)}
    if (
        values.get("error_over_tolerance") is not None
        and len(known) == len(errors)
        and tolerances.keys() >= known.keys()
    ):
        figures["error_over_tolerance"] = max(known[name] / tolerances[name] for name in known)
    return figures


def _differing(values: Mapping[str, Any], wanted: Mapping[str, float | None], source: str) -> Iterable[str]:
    for name, figure in wanted.items():
        if name in values and not _same(values[name], figure):
            yield f"{name} is {values[name]}, but {source} give {figure}"


def _same(stored: Any, figure: float | None) -> bool:
    if stored is None or figure is None or isinstance(stored, str | bool):
        return stored is figure
    both_lost = math.isnan(stored) and math.isnan(figure)
    return both_lost or math.isclose(stored, figure, rel_tol=CLOSE, abs_tol=0.0)
