"""A trace kept as a baseline: what must be the same for a later trace to be held against it, and what may differ."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

from day0.errors import CannotSay, InputError
from day0.numerics.reading import Recording

BASELINE = 1
"""Version of what a baseline holds; another one is refused, not guessed at."""
SAME: Mapping[str, str] = {"model_sha256": "model", "runtime": "runtime", "processor": "processor"}
"""Facts that must agree, and how they are called."""
MARK = "baseline"


def baseline_facts(device: str) -> dict[str, Any]:
    """What a trace says of the machine; `device` is the type of the one that ran it, not "auto"."""
    return {"processor": platform.machine(), "ran_on": device, "python": platform.python_version()}


def is_baseline(recording: Recording) -> bool:
    return MARK in recording.facts


def baseline_remarks(baseline: Recording, candidate: Recording) -> tuple[str, ...]:
    """What changed since a baseline was kept, such as versions, in sentences; an upgrade is what it is for.

    Raises InputError for a baseline of another model, plan or device, whose numbers say nothing here, and CannotSay
    where one side does not say what it is of.
    """
    kept, now = baseline.facts, candidate.facts
    if kept.get(MARK) != BASELINE:
        raise InputError(
            f"is a baseline of version {kept.get(MARK)!r}, this day0 reads {BASELINE}",
            where=baseline.where,
            hint="keep a new one: day0 trace MODEL OUT --baseline",
        )
    for key, called in {**SAME, "ran_on": "device"}.items():
        _same(called, kept.get(key), now.get(key), baseline, candidate)
    settings, others = kept.get("settings", {}), now.get("settings", {})
    for name in sorted({*settings, *others} - {"device"}):
        _same(f"setting {name}", settings.get(name), others.get(name), baseline, candidate, may_lack=True)
    before = {**kept.get("versions", {}), "python": kept.get("python")}
    after = {**now.get("versions", {}), "python": now.get("python")}
    changed = [
        f"{name} {before.get(name)} -> {after.get(name)}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
    return (f"since the baseline: {', '.join(changed)}",) if changed else ()


def _same(
    called: str, kept: object, now: object, baseline: Recording, candidate: Recording, may_lack: bool = False
) -> None:
    if not may_lack and (kept is None or now is None):
        side = baseline if kept is None else candidate
        raise CannotSay(f"does not say its {called}", where=side.where, hint="trace it again with this day0")
    if kept != now:
        raise InputError(
            f"is of another {called}: {_short(kept)}, the candidate's is {_short(now)}",
            where=baseline.where,
            hint="a baseline is compared with the same model, plan and device; keep one for each",
        )


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 16 else f"{text[:12]}..."
