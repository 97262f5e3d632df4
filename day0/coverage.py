"""The operator whitelist and what it says of each need: verified, unverified, constraint or gap.

The format is in docs/inspect.md. A user's file is laid over ours column by column, so that a vendor adds a device
without touching what is there.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

import msgspec

from day0.errors import InputError
from day0.inventory import Fact, OperatorNeed
from day0.operators import OPERATORS
from day0.source.data_files import data_path, load_yaml

Status = Literal["verified", "unverified", "constraint", "gap"]
Claim = Literal["verified", "unverified"]

STATUSES: tuple[Status, ...] = ("verified", "unverified", "constraint", "gap")
"""Best first."""


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the file; a key that nobody would read is refused."""


class Bound(_Strict, frozen=True, kw_only=True):
    """What a provider demands of one fact of a need."""

    min: int | float | None = None
    max: int | float | None = None
    multiple_of: int | None = None
    one_of: tuple[Fact, ...] | None = None

    def refusal(self, name: str, value: Fact) -> str | None:
        """Why `value` is not allowed, None where it is."""
        if self.one_of is not None and value not in self.one_of:
            return f"{name} {value} is not one of {', '.join(map(str, self.one_of))}"
        if self.min is None and self.max is None and self.multiple_of is None:
            return None
        if value is None or isinstance(value, str):
            return f"{name} is {value}, a number is needed"
        if self.min is not None and value < self.min:
            return f"{name} {value} is below {self.min}"
        if self.max is not None and value > self.max:
            return f"{name} {value} is above {self.max}"
        if self.multiple_of is not None and value % self.multiple_of:
            return f"{name} {value} is not a multiple of {self.multiple_of}"
        return None


class Device(_Strict, frozen=True, kw_only=True):
    """A column of the whitelist. `marker` is a path that exists where a machine has the device; a device without
    one is taken for present everywhere."""

    marker: str | None = None


class _Run(_Strict, frozen=True, kw_only=True):
    """Where a batch of measurements comes from; rows name it, so that it is written once."""

    versions: dict[str, str]
    date: date
    command: str


class _Row(_Strict, frozen=True, kw_only=True):
    """Measurements at one set of sizes; `worst_error` and `ratio` are by dtype."""

    shape: dict[str, int]
    attributes: dict[str, Fact] = msgspec.field(default_factory=dict)
    worst_error: dict[str, float]
    ratio: dict[str, float]
    run: str


class _Column(_Strict, frozen=True, kw_only=True):
    status: Claim
    reason: str = ""
    constraints: dict[str, Bound] = msgspec.field(default_factory=dict)
    spans: tuple[str, ...] = ()
    evidence: tuple[_Row, ...] = ()


class _Entry(_Strict, frozen=True, kw_only=True):
    operator: str
    provider: str
    devices: dict[str, _Column]


class _Document(_Strict, frozen=True, kw_only=True):
    devices: dict[str, Device] = msgspec.field(default_factory=dict)
    runs: dict[str, _Run] = msgspec.field(default_factory=dict)
    entries: list[Any] = msgspec.field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One measurement. `worst_error` is relative to the reference's size, `ratio` is error over allowance."""

    shape: Mapping[str, int]
    attributes: Mapping[str, Fact]
    dtype: str
    device: str
    worst_error: float
    ratio: float
    versions: Mapping[str, str]
    date: date
    command: str

    def at(self, name: str) -> Fact:
        """The size or attribute that was measured."""
        return self.shape[name] if name in self.shape else self.attributes.get(name)


@dataclass(frozen=True, slots=True)
class Column:
    """What one provider says of one operator on one device.

    Evidence speaks for exactly its own sizes, except along `spans`: there, everything between the smallest and the
    largest measured size is covered.
    """

    status: Claim
    reason: str
    constraints: Mapping[str, Bound]
    spans: tuple[str, ...]
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class Whitelist:
    """All columns by (operator, provider, device), and the devices there are."""

    devices: Mapping[str, Device]
    columns: Mapping[tuple[str, str, str], Column]

    def offers(self, operator: str, device: str) -> Iterator[tuple[str, Column]]:
        """(provider, column) of everybody who has the operator on the device."""
        for (name, provider, place), column in self.columns.items():
            if name == operator and place == device:
                yield provider, column

    def devices_with(self, operator: str) -> tuple[str, ...]:
        return tuple(sorted({place for name, _, place in self.columns if name == operator}))

    def verified_on(self, device: str) -> frozenset[tuple[str, str]]:
        """(operator, provider) pairs with evidence on the device, whatever the sizes."""
        return frozenset(
            (operator, provider)
            for (operator, provider, place), column in self.columns.items()
            if place == device and column.status == "verified"
        )

    def present_device(self) -> str:
        """The first device whose marker exists here, else the first that needs none."""
        marked = [name for name, device in self.devices.items() if device.marker and Path(device.marker).exists()]
        plain = [name for name, device in self.devices.items() if device.marker is None]
        if not marked + plain:
            raise InputError("no device is listed that could be present", where="operator whitelist: devices")
        return (marked + plain)[0]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the whitelist says of one need; `provider` is who serves it best, None for a gap."""

    need: OperatorNeed
    status: Status
    provider: str | None
    reason: str
    evidence: tuple[Evidence, ...] = ()


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


def load_whitelist(overlay: Path | None = None) -> Whitelist:
    """Our whitelist with the user's laid over it: its columns replace ours of the same operator, provider, device."""
    ours = read_whitelist(data_path("operator_whitelist.yaml"))
    return ours if overlay is None else read_whitelist(overlay, under=ours)


def read_whitelist(path: Path, *, under: Whitelist | None = None) -> Whitelist:
    """One whitelist file; raises InputError naming file and entry for whatever nobody would have understood."""
    document: _Document = _convert(load_yaml(path) or {}, _Document, str(path))
    devices = {**(under.devices if under else {}), **document.devices}
    columns: dict[tuple[str, str, str], Column] = {}
    for number, raw in enumerate(document.entries, start=1):
        where = f"{path}: entry {number}"
        if isinstance(raw, dict) and raw.get("operator"):
            where += f" ({raw['operator']}, {raw.get('provider', 'no provider')})"
        entry: _Entry = _convert(raw, _Entry, where)
        if entry.operator not in OPERATORS:
            close = difflib.get_close_matches(entry.operator, OPERATORS, n=3, cutoff=0.5)
            hint = f"did you mean {', '.join(close)}?" if close else "docs/operators.md lists the known ones"
            raise InputError(f"operator {entry.operator!r} is not in the vocabulary", where=where, hint=hint)
        for device, column in entry.devices.items():
            _known([device], [*devices], where, "device")
            key = (entry.operator, entry.provider, device)
            if key in columns:
                raise InputError(f"device {device} is given twice", where=where, hint="merge the two entries")
            columns[key] = _read_column(column, entry.operator, device, document.runs, f"{where}: {device}")
    return Whitelist(devices, {**(under.columns if under else {}), **columns})


def _read_column(column: _Column, operator: str, device: str, runs: Mapping[str, _Run], where: str) -> Column:
    contract = OPERATORS[operator]
    facts = (*contract.model_axes, *contract.attributes)
    _known(column.constraints, (*facts, "dtype"), f"{where}.constraints")
    _known(column.spans, facts, f"{where}.spans")
    if column.status == "verified" and not column.evidence:
        raise InputError(
            "a verified column without evidence", where=where, hint="add measurements, or say status: unverified"
        )
    evidence: list[Evidence] = []
    for number, row in enumerate(column.evidence, start=1):
        place = f"{where}.evidence {number}"
        _known(row.shape, contract.axes, f"{place}.shape")
        _known(row.attributes, contract.attributes, f"{place}.attributes")
        _known([row.run], [*runs], place, "run")
        missing = [name for name in facts if name not in row.shape and name not in row.attributes]
        if missing or row.worst_error.keys() != row.ratio.keys() or not row.ratio:
            raise InputError(f"does not say {', '.join(missing) or 'error and ratio of every dtype'}", where=place)
        evidence += _evidence(row, device, runs[row.run])
    failed = [one for one in evidence if not (math.isfinite(one.worst_error) and 0.0 <= one.ratio <= 1.0)]
    if column.status == "verified" and failed:
        worst = f"an error of {failed[0].worst_error} in {failed[0].dtype}, {failed[0].ratio} times what is allowed"
        raise InputError(f"a verified column with {worst}", where=where)
    return Column(column.status, column.reason, column.constraints, column.spans, tuple(evidence))


def _evidence(row: _Row, device: str, run: _Run) -> Iterator[Evidence]:
    for dtype, worst_error in row.worst_error.items():
        yield Evidence(
            shape=row.shape,
            attributes=row.attributes,
            dtype=dtype,
            device=device,
            worst_error=worst_error,
            ratio=row.ratio[dtype],
            versions=run.versions,
            date=run.date,
            command=run.command,
        )


def _known(given: Mapping[str, Any] | Sequence[str], known: Sequence[str], where: str, what: str = "key") -> None:
    for name in given:
        if name not in known:
            raise InputError(f"unknown {what} {name!r}", where=where, hint=f"known: {', '.join(known) or 'none'}")


def _convert(value: Any, kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as fault:
        raise InputError(str(fault), where=where) from None


def judge(needs: Sequence[OperatorNeed], whitelist: Whitelist, device: str) -> Coverage:
    """A verdict per need: the best that any provider offers on the device."""
    if device not in whitelist.devices:
        raise InputError(
            f"the whitelist has no column for device {device!r}",
            where="--device",
            hint=f"known: {', '.join(whitelist.devices)}; a file given with --whitelist may add one",
        )
    return Coverage(device, tuple(_verdict(need, whitelist, device) for need in needs))


def _verdict(need: OperatorNeed, whitelist: Whitelist, device: str) -> Verdict:
    verdicts = [_offer(need, provider, column) for provider, column in whitelist.offers(need.name, device)]
    if verdicts:
        return min(verdicts, key=lambda verdict: STATUSES.index(verdict.status))
    elsewhere = whitelist.devices_with(need.name)
    reason = f"only on {', '.join(elsewhere)}" if elsewhere else "nobody offers it on any device"
    return Verdict(need, "gap", None, reason)


def _offer(need: OperatorNeed, provider: str, column: Column) -> Verdict:
    for name, bound in column.constraints.items():
        refusal = bound.refusal(name, need.facts[name])
        if refusal is not None:
            return Verdict(need, "constraint", provider, refusal)
    if column.status == "unverified":
        return Verdict(need, "unverified", provider, column.reason or "claimed, nothing measured", column.evidence)
    rows, shortfall = _covering(need, column)
    if shortfall:
        return Verdict(need, "unverified", provider, shortfall, rows)
    return Verdict(need, "verified", provider, f"{len(rows)} measurements cover these sizes", rows)


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
