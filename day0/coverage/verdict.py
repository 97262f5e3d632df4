"""One verdict per need: verified, unverified, constraint or gap, and who serves it or why nobody does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from day0.coverage.constraint import all_facts
from day0.coverage.whitelist import Column, Evidence, Whitelist
from day0.errors import InputError
from day0.inventory import Fact, OperatorNeed
from day0.operators import OPERATORS

Status = Literal["verified", "unverified", "constraint", "gap"]

STATUSES: tuple[Status, ...] = ("verified", "unverified", "constraint", "gap")
"""Best first."""

Offer = tuple[str, Column]
"""A provider and its column."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the whitelist says of one need. `provider` is who serves it best, None for a gap; where it takes one for
    prefill and another for decode, or several are bound by constraints, all are named."""

    need: OperatorNeed
    status: Status
    provider: str | None
    reason: str
    evidence: tuple[Evidence, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class Coverage:
    """One verdict per need, for one device."""

    device: str
    verdicts: tuple[Verdict, ...]

    @property
    def counts(self) -> dict[Status, int]:
        return {status: sum(verdict.status == status for verdict in self.verdicts) for status in STATUSES}

    @property
    def lacking(self) -> tuple[Verdict, ...]:
        """What cannot be served here: gaps and violated constraints."""
        return tuple(verdict for verdict in self.verdicts if verdict.status in ("gap", "constraint"))


def judge(needs: Sequence[OperatorNeed], whitelist: Whitelist, device: str) -> Coverage:
    """A verdict per need: the best that any provider offers on the device."""
    if device in whitelist.families:
        members = [name for name, one in whitelist.devices.items() if one.family == device]
        hint = f"name one of them: {', '.join(members)}"
        raise InputError(f"{device} is a family of devices", where="--device", hint=hint)
    if device not in whitelist.devices:
        raise InputError(
            f"the whitelist has no column for device {device!r}",
            where="--device",
            hint=f"known: {', '.join(whitelist.devices)}; a file given with --whitelist may add one",
        )
    return Coverage(device, tuple(_verdict(need, whitelist, device) for need in needs))


def _verdict(need: OperatorNeed, whitelist: Whitelist, device: str) -> Verdict:
    offers = [*whitelist.offers(need.name, device)]
    if not offers:
        elsewhere = whitelist.devices_with(need.name)
        return Verdict(
            need, "gap", None, f"only on {', '.join(elsewhere)}" if elsewhere else "nobody offers it on any device"
        )
    facts = all_facts(need, whitelist.devices[device].facts)
    whole = [offer for offer in offers if not offer[1].phases or {*need.phases} <= {*offer[1].phases}]
    alone = _best(need, facts, whole) if whole else None
    together = _by_phase(need, facts, offers)
    return min((one for one in (alone, together) if one is not None), key=_rank)


def _rank(verdict: Verdict) -> int:
    return STATUSES.index(verdict.status)


def _by_phase(need: OperatorNeed, facts: Mapping[str, Fact], offers: Sequence[Offer]) -> Verdict | None:
    """The best for each phase; None where that is one provider for all. As good as its worst phase."""
    parts: dict[str, Verdict] = {}
    for phase in need.phases:
        serving = [offer for offer in offers if not offer[1].phases or phase in offer[1].phases]
        nobody = Verdict(need, "gap", None, "nobody offers it on any device")
        parts[phase] = _best(need, facts, serving) if serving else nobody
    if not parts or all(part == next(iter(parts.values())) for part in parts.values()):
        return None
    worst = max(parts.values(), key=_rank)
    if worst.status == "gap":
        having = ", ".join(dict.fromkeys(provider for provider, _ in offers))
        return Verdict(need, "gap", None, f"nobody offers {_phases(parts, 'gap')}; {having} has the rest")
    providers = dict.fromkeys(part.provider for part in parts.values() if part.provider is not None)
    reasons = {phase: f"{phase} by {part.provider}: {part.reason}" for phase, part in parts.items()}
    if worst.status == "constraint":
        reasons = {phase: reasons[phase] for phase, part in parts.items() if part.status == "constraint"}
    return Verdict(
        need,
        worst.status,
        ", ".join(providers),
        "; ".join(reasons.values()),
        tuple(row for part in parts.values() for row in part.evidence),
        "; ".join(dict.fromkeys(part.source for part in parts.values() if part.source)),
    )


def _phases(parts: Mapping[str, Verdict], status: Status) -> str:
    return " and ".join(phase for phase, part in parts.items() if part.status == status)


def _best(need: OperatorNeed, facts: Mapping[str, Fact], offers: Sequence[Offer]) -> Verdict:
    """The best offer; where each breaks a constraint, all of them with what each breaks."""
    verdicts = [_offer(need, facts, provider, column) for provider, column in offers]
    best = min(verdicts, key=_rank)
    if best.status != "constraint" or len(verdicts) == 1:
        return best
    providers = ", ".join(dict.fromkeys(verdict.provider or "" for verdict in verdicts))
    reason = "; ".join(f"{verdict.provider}: {verdict.reason}" for verdict in verdicts)
    source = "; ".join(dict.fromkeys(verdict.source for verdict in verdicts if verdict.source))
    return Verdict(need, "constraint", providers, reason, source=source)


def _offer(need: OperatorNeed, facts: Mapping[str, Fact], provider: str, column: Column) -> Verdict:
    for name, bound in column.constraints.items():
        refusal = bound.refusal(name, facts.get(name))
        if refusal is not None:
            return Verdict(need, "constraint", provider, refusal, source=column.source)
    if column.status == "unverified":
        reason = column.reason or "claimed, nothing measured"
        return Verdict(need, "unverified", provider, reason, column.evidence, column.source)
    if column.stale:
        return Verdict(need, "unverified", provider, f"stale: {column.stale}", column.evidence, column.source)
    rows, shortfall = _covering(need, column)
    if shortfall:
        return Verdict(need, "unverified", provider, shortfall, rows, column.source)
    return Verdict(need, "verified", provider, f"{len(rows)} measurements cover these sizes", rows, column.source)


def _covering(need: OperatorNeed, column: Column) -> tuple[tuple[Evidence, ...], str]:
    """The evidence that speaks of this need, and what it leaves open ("" for nothing)."""
    any_dtype = not OPERATORS[need.name].follows_model_dtype
    rows = tuple(row for row in column.evidence if any_dtype or row.dtype == need.dtype)
    if not rows:
        return (), f"not measured in {need.dtype}"
    for name, value in {**need.attributes, **need.shapes}.items():
        if name in column.spans and value is not None:
            continue
        rows, before = tuple(row for row in rows if _speaks_for(row.at(name), value)), rows
        if not rows:
            seen = ", ".join(sorted({str(row.at(name)) for row in before}))
            return before, f"measured with {name} {seen}, not {value}"
    for name in column.spans:
        value = need.facts[name]
        sizes = [size for row in rows if isinstance(size := row.at(name), int | float)]
        if isinstance(value, int | float) and not (sizes and min(sizes) <= value <= max(sizes)):
            measured = f"{min(sizes)} to {max(sizes)}" if sizes else "nothing"
            return rows, f"{name} {value} lies outside what was measured ({measured})"
    return rows, ""


def _speaks_for(measured: Fact, needed: Fact) -> bool:
    """Sizes, flags and words must be the same; of real numbers (eps, scale) it matters only that there is one."""
    if isinstance(needed, float):
        return isinstance(measured, int | float) and not isinstance(measured, bool)
    return type(needed) is type(measured) and needed == measured
