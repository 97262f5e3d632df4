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
from day0.operators import OPERATORS, VARIABLE_AXES
from day0.source.data_files import data_path, load_yaml

Status = Literal["verified", "unverified", "constraint", "gap"]
Claim = Literal["verified", "unverified"]

STATUSES: tuple[Status, ...] = ("verified", "unverified", "constraint", "gap")
"""Best first."""


class Bound(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
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


class Evidence(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One measurement. `worst_error` is relative to the reference's size, `ratio` is error over allowance."""

    shape: dict[str, int]
    attributes: dict[str, Fact] = msgspec.field(default_factory=dict)
    dtype: str
    worst_error: float
    ratio: float
    versions: dict[str, str]
    date: date
    command: str


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What one provider says of one operator on one device.

    Evidence holds for exactly its own sizes, except along `spans`: there, what lies between the smallest and the
    largest measured size is covered too.
    """

    status: Claim
    reason: str = ""
    constraints: dict[str, Bound] = msgspec.field(default_factory=dict)
    spans: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    operator: str
    provider: str
    devices: dict[str, Column]


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A column of the whitelist. `marker` is a path that exists where a machine has the device; without one the
    device is taken for present everywhere."""

    marker: str | None = None


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    devices: dict[str, Device] = msgspec.field(default_factory=dict)
    entries: list[Any] = msgspec.field(default_factory=list)


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
    whitelist = read_whitelist(data_path("operator_whitelist.yaml"))
    if overlay is None:
        return whitelist
    return read_whitelist(overlay, under=whitelist)


def read_whitelist(path: Path, *, under: Whitelist | None = None) -> Whitelist:
    """One whitelist file; raises InputError naming file and entry for whatever nobody would have understood."""
    document = _convert(load_yaml(path) or {}, _Document, str(path))
    devices = {**(under.devices if under else {}), **document.devices}
    columns: dict[tuple[str, str, str], Column] = {}
    for number, raw in enumerate(document.entries, start=1):
        where = f"{path}: entry {number}"
        if isinstance(raw, dict) and raw.get("operator"):
            where += f" ({raw['operator']}, {raw.get('provider', 'no provider')})"
        entry = _convert(raw, _Entry, where)
        if entry.operator not in OPERATORS:
            close = difflib.get_close_matches(entry.operator, OPERATORS, n=3, cutoff=0.5)
            hint = f"did you mean {', '.join(close)}?" if close else "docs/operators.md lists the known ones"
            raise InputError(f"operator {entry.operator!r} is not in the vocabulary", where=where, hint=hint)
        for device, column in entry.devices.items():
            if device not in devices:
                raise InputError(
                    f"device {device!r} is not declared", where=where, hint=f"add it under devices; known: {[*devices]}"
                )
            key = (entry.operator, entry.provider, device)
            if key in columns:
                raise InputError(f"{device} is given twice", where=where, hint="merge the two entries")
            _check_column(column, entry.operator, f"{where}: {device}")
            columns[key] = column
    return Whitelist(devices, {**(under.columns if under else {}), **columns})


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
    reason = f"nobody offers it on {device}" + (f", only on {', '.join(elsewhere)}" if elsewhere else " or elsewhere")
    return Verdict(need, "gap", None, reason)


def _offer(need: OperatorNeed, provider: str, column: Column) -> Verdict:
    for name, bound in column.constraints.items():
        refusal = bound.refusal(name, need.facts[name])
        if refusal is not None:
            return Verdict(need, "constraint", provider, refusal)
    if column.status == "unverified":
        return Verdict(need, "unverified", provider, column.reason or "claimed, no evidence recorded", column.evidence)
    rows, shortfall = _covering(need, column)
    if shortfall:
        return Verdict(need, "unverified", provider, shortfall, rows)
    return Verdict(need, "verified", provider, f"{len(rows)} measurements cover these sizes", rows)


def _covering(need: OperatorNeed, column: Column) -> tuple[tuple[Evidence, ...], str]:
    """The evidence that speaks of this need, and what it leaves open ("" for nothing)."""
    rows = tuple(row for row in column.evidence if row.dtype == need.dtype)
    if not rows:
        return (), f"no evidence in {need.dtype}"
    for name, value in {**need.attributes, **need.shapes}.items():
        if name in column.spans and value is not None:
            continue
        rows, before = tuple(row for row in rows if _same(value, _measured(row, name))), rows
        if not rows:
            seen = sorted({str(_measured(row, name)) for row in before})
            return before, f"evidence is for {name} {', '.join(seen)}, this is {value}"
    for name in column.spans:
        value = need.facts[name]
        sizes = [size for row in rows if isinstance(size := _measured(row, name), int | float)]
        if isinstance(value, int | float) and not (sizes and min(sizes) <= value <= max(sizes)):
            measured = f"{min(sizes)} to {max(sizes)}" if sizes else "nothing"
            return rows, f"{name} {value} lies outside what was measured ({measured})"
    return rows, ""


def _measured(row: Evidence, name: str) -> Fact:
    return row.shape[name] if name in row.shape else row.attributes.get(name)


def _same(needed: Fact, measured: Fact) -> bool:
    """Whether evidence at `measured` speaks for `needed`: real numbers (eps, scale) need only be there."""
    if isinstance(needed, float) and isinstance(measured, int | float):
        return True
    return type(needed) is type(measured) and needed == measured


def _check_column(column: Column, operator: str, where: str) -> None:
    contract = OPERATORS[operator]
    known = {*contract.model_axes, *contract.attributes}
    _only_known(column.constraints, known | {"dtype"}, f"{where}.constraints")
    _only_known(column.spans, known, f"{where}.spans")
    if column.status == "verified" and not column.evidence:
        raise InputError(
            "a verified column without evidence", where=where, hint="add measurements, or say status: unverified"
        )
    for number, row in enumerate(column.evidence, start=1):
        place = f"{where}.evidence {number}"
        _only_known(row.shape, {*contract.axes, *VARIABLE_AXES}, f"{place}.shape")
        _only_known(row.attributes, set(contract.attributes), f"{place}.attributes")
        missing = [name for name in contract.model_axes if name not in row.shape]
        missing += [name for name in contract.attributes if name not in row.attributes]
        if missing:
            raise InputError(f"does not say {', '.join(missing)}", where=place)
        if not (math.isfinite(row.worst_error) and 0.0 <= row.ratio <= 1.0):
            raise InputError(f"error {row.worst_error}, {row.ratio} of the allowance, proves nothing", where=place)


def _only_known(given: Mapping[str, Any] | Sequence[str], known: set[str], where: str) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise InputError(f"unknown key {unknown[0]!r}", where=where, hint=f"known: {', '.join(sorted(known))}")


def _convert(value: Any, kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as fault:
        raise InputError(str(fault), where=where) from None
