"""What the runtime takes for granted of a torch device, clause by clause, each with an answer known beforehand.

The meaning of the clauses is written down in `docs/device-contract.md`. A device's stack that keeps them all runs the
reference operators; one that does not is told which it breaks, before anybody looks for the fault in a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

Check = Callable[[torch.device], str | None]
"""What is wrong on a device, None where the clause is kept."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One thing a device must do. `why` says what in the runtime rests on it."""

    name: str
    why: str
    check: Check


@dataclass(frozen=True, slots=True)
class Breach:
    """A clause that a device does not keep: what it did instead, or the error it raised."""

    clause: str
    why: str
    found: str


def breaches(device: torch.device, clauses: Iterable[Clause]) -> list[Breach]:
    """Try every clause on a device; an operation it lacks is a breach of that clause and does not end the rest."""
    found = []
    for clause in clauses:
        try:
            wrong = clause.check(device)
        except (RuntimeError, NotImplementedError, TypeError) as fault:  # what torch raises for what a device lacks
            wrong = f"{type(fault).__name__}: {str(fault).splitlines()[0][:200] if str(fault) else 'no message'}"
        if wrong is not None:
            found.append(Breach(clause.name, clause.why, wrong))
    return found


def differs(found: torch.Tensor, wanted: Sequence[object] | float | int | bool, tolerance: float = 0.0) -> str | None:
    """How `found` is not the wanted numbers (nested lists), None where it is within a relative `tolerance`."""
    ours = found.cpu()
    reference = torch.tensor(wanted, dtype=ours.dtype)
    if ours.shape != reference.shape:
        return f"shape {list(ours.shape)}, wanted {list(reference.shape)}"
    if tolerance:
        wide, goal = ours.double(), reference.double()
        holds = bool(((wide - goal).abs() <= tolerance * goal.abs().clamp_min(torch.finfo(torch.float32).tiny)).all())
    else:
        holds = torch.equal(ours, reference)
    return None if holds else f"gave {ours.flatten()[:8].tolist()}, wanted {reference.flatten()[:8].tolist()}"


def first_of(checks: Mapping[str, str | None]) -> str | None:
    """The first fault among named checks."""
    return next((f"{name}: {wrong}" for name, wrong in checks.items() if wrong is not None), None)
