"""The whitelist file: who has which operator on which device, what they demand, and what was measured.

The format is in docs/inspect.md. A user's file is laid over ours column by column, so that a vendor adds a device
without touching what is there.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Literal

import msgspec

from day0.coverage.constraint import Bound, Strict, ratios
from day0.coverage.device import Device, called, check_devices, present
from day0.coverage.sources import changed_sources
from day0.errors import InputError
from day0.inventory import Fact
from day0.operators import OPERATORS, Phase
from day0.source.data_files import data_path, load_yaml

Claim = Literal["verified", "unverified"]


class _Run(Strict, frozen=True, kw_only=True):
    """Where a batch of measurements comes from; rows name it, so that it is written once."""

    versions: dict[str, str]
    date: date
    command: str


class _Row(Strict, frozen=True, kw_only=True):
    """Measurements at one set of sizes; `worst_error`, `ratio`, `noise` and `share` are by dtype."""

    shape: dict[str, int]
    attributes: dict[str, Fact] = msgspec.field(default_factory=dict)
    worst_error: dict[str, float]
    ratio: dict[str, float]
    noise: dict[str, float] = msgspec.field(default_factory=dict)
    share: dict[str, float] = msgspec.field(default_factory=dict)
    run: str


class _Column(Strict, frozen=True, kw_only=True):
    status: Claim
    reason: str = ""
    source: str = ""
    phases: tuple[Phase, ...] = ()
    constraints: dict[str, Bound] = msgspec.field(default_factory=dict)
    spans: tuple[str, ...] = ()
    sources: dict[str, str] = msgspec.field(default_factory=dict)
    evidence: tuple[_Row, ...] = ()


class _Entry(Strict, frozen=True, kw_only=True):
    operator: str
    provider: str
    devices: dict[str, _Column]


class _Document(Strict, frozen=True, kw_only=True):
    devices: dict[str, Device] = msgspec.field(default_factory=dict)
    runs: dict[str, _Run] = msgspec.field(default_factory=dict)
    entries: list[Any] = msgspec.field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One measurement. `worst_error` is relative to the reference's size, `ratio` is error over allowance.

    `noise` is error over the reference's own in the same dtype, `share` the part of the chip's roofline that was
    reached; None where they were not measured.
    """

    shape: Mapping[str, int]
    attributes: Mapping[str, Fact]
    dtype: str
    device: str
    worst_error: float
    ratio: float
    versions: Mapping[str, str]
    date: date
    command: str
    noise: float | None = None
    share: float | None = None

    def at(self, name: str) -> Fact:
        """The size or attribute that was measured."""
        return self.shape[name] if name in self.shape else self.attributes.get(name)


@dataclass(frozen=True, slots=True)
class Column:
    """What one provider says of one operator on one device, or on every device of a family.

    Evidence speaks for exactly its own sizes, except along `spans`: there, everything between the smallest and the
    largest measured size is covered. `phases` are those it serves, none for all; `source` is where a claim is from.
    `sources` are files of ours that were measured, with the start of their SHA-256.
    """

    status: Claim
    reason: str
    source: str
    phases: tuple[Phase, ...]
    constraints: Mapping[str, Bound]
    spans: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def stale(self) -> str:
        """What of the measured code has changed since, in words; "" for nothing."""
        changed = changed_sources(self.sources)
        return f"{', '.join(changed)} changed since it was measured" if changed else ""


@dataclass(frozen=True, slots=True)
class Whitelist:
    """All columns by (operator, provider, device or family), and the devices there are."""

    devices: Mapping[str, Device]
    columns: Mapping[tuple[str, str, str], Column]

    @property
    def families(self) -> frozenset[str]:
        return frozenset(device.family for device in self.devices.values() if device.family is not None)

    def offers(self, operator: str, device: str) -> Iterator[tuple[str, Column]]:
        """(provider, column) of everybody who has the operator; a device's own column stands before its family's."""
        family = self.devices[device].family
        for (name, provider, place), column in self.columns.items():
            if name == operator and (
                place == device or (place == family and (operator, provider, device) not in self.columns)
            ):
                yield provider, column

    def devices_with(self, operator: str) -> tuple[str, ...]:
        """Devices and families for which anybody has the operator."""
        return tuple(sorted({place for name, _, place in self.columns if name == operator}))

    def verified_on(self, device: str) -> frozenset[tuple[str, str]]:
        """(operator, provider) pairs with evidence on the device, whatever the sizes; stale evidence is none.

        `device` is a column's name, what the accelerator calls itself ("NVIDIA H200"), or a family: then it is the
        evidence on the member that is here.
        """
        device = called(self.devices, device) or device
        if device in self.families:
            device = self.present_device()
        return frozenset(
            (operator, provider)
            for (operator, provider, place), column in self.columns.items()
            if place == device and column.status == "verified" and not column.stale
        )

    def present_device(self) -> str:
        """The first device whose marker is found here, else the first that needs none."""
        return present(self.devices)


def load_whitelist(overlay: Path | None = None) -> Whitelist:
    """Our whitelist with the user's laid over it: its columns replace ours of the same operator, provider, device."""
    ours = read_whitelist(data_path("operator_whitelist.yaml"))
    return ours if overlay is None else read_whitelist(overlay, under=ours)


def read_whitelist(path: Path, *, under: Whitelist | None = None) -> Whitelist:
    """One whitelist file; raises InputError naming file and entry for whatever nobody would have understood."""
    document: _Document = _convert(load_yaml(path) or {}, _Document, str(path))
    devices = {**(under.devices if under else {}), **document.devices}
    check_devices(devices, f"{path}: devices")
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
        for place, column in entry.devices.items():
            key = (entry.operator, entry.provider, place)
            if key in columns:
                raise InputError(f"device {place} is given twice", where=where, hint="merge the two entries")
            columns[key] = _read_column(column, entry.operator, place, devices, document.runs, f"{where}: {place}")
    return Whitelist(devices, {**(under.columns if under else {}), **columns})


def _read_column(
    column: _Column, operator: str, place: str, devices: Mapping[str, Device], runs: Mapping[str, _Run], where: str
) -> Column:
    members = [device for name, device in devices.items() if place in (name, device.family)]
    if not members:
        _known([place], [*devices], where, "device")
    contract = OPERATORS[operator]
    facts = (*contract.model_axes, *contract.attributes)
    _known(column.constraints, (*facts, *ratios(facts), "dtype", *members[0].facts), f"{where}.constraints")
    _known(column.spans, facts, f"{where}.spans")
    _known(column.phases, contract.phases, f"{where}.phases", "phase")
    if column.status == "verified" and not column.evidence:
        hint = "add measurements, or say status: unverified"
        raise InputError("a verified column without evidence", where=where, hint=hint)
    if column.evidence and place not in devices:
        hint = f"give it in a column of the device it was measured on: {', '.join(devices)}"
        raise InputError(f"evidence for a whole family, {place}", where=where, hint=hint)
    evidence = tuple(_all_evidence(column, operator, place, runs, where))
    failed = [one for one in evidence if not (math.isfinite(one.worst_error) and 0.0 <= one.ratio <= 1.0)]
    if column.status == "verified" and failed:
        worst = f"an error of {failed[0].worst_error} in {failed[0].dtype}, {failed[0].ratio} times what is allowed"
        raise InputError(f"a verified column with {worst}", where=where)
    return Column(
        column.status,
        column.reason,
        column.source,
        column.phases,
        column.constraints,
        column.spans,
        evidence,
        column.sources,
    )


def _all_evidence(
    column: _Column, operator: str, device: str, runs: Mapping[str, _Run], where: str
) -> Iterator[Evidence]:
    contract = OPERATORS[operator]
    for number, row in enumerate(column.evidence, start=1):
        place = f"{where}.evidence {number}"
        _known(row.shape, contract.axes, f"{place}.shape")
        _known(row.attributes, contract.attributes, f"{place}.attributes")
        _known([row.run], [*runs], place, "run")
        facts = (*contract.model_axes, *contract.attributes)
        missing = [name for name in facts if name not in row.shape and name not in row.attributes]
        if missing or row.worst_error.keys() != row.ratio.keys() or not row.ratio:
            raise InputError(f"does not say {', '.join(missing) or 'error and ratio of every dtype'}", where=place)
        yield from _evidence(row, device, runs[row.run])


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
            noise=row.noise.get(dtype),
            share=row.share.get(dtype),
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
