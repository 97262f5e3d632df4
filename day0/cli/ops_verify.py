"""The work of `day0 ops verify`: the device contract, then kernels at standard sizes or at those of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from day0.cli.output import status_console
from day0.coverage import load_whitelist
from day0.coverage.device import called
from day0.coverage.recording import run_record
from day0.coverage.sources import kernel_sources
from day0.errors import ExitCode, InputError
from day0.inventory import take_inventory
from day0.profile.read import read_profile
from day0.runtime.ops.registry import TRITON
from day0.runtime.verify.case import Cases
from day0.runtime.verify.evidence import Tried, column
from day0.runtime.verify.machine import Found, Machine, Subject, examine, meet, sizes_of_need, subjects
from day0.runtime.verify.sizes import CASES
from day0.source.resolve import resolve

if TYPE_CHECKING:
    from rich.console import Console

COMMAND = "day0 ops verify"


def verified(names: Sequence[str], model: str | None, device_name: str, provider: str) -> dict[str, Any]:
    """Everything that was tried, as the document that is printed; its entries are the whitelist's."""
    wanted, left_out = _wanted(names, model)
    if not wanted:
        raise InputError("nothing of what was asked for can be tried", hint="; ".join(one["why"] for one in left_out))
    machine = meet(device_name)
    found: list[Found] = []
    for subject, cases in _pairs(wanted, machine, provider):
        if subject.unmet:
            left_out.append(_missing(subject.operator, subject.unmet, subject.provider, asked=bool(provider)))
        else:
            found.append(examine(subject, machine, cases, _progress(subject)))
    place, devices = _place(machine)
    run = f"verify-{place}"
    entries = [_entry(one, place, run) for one in found]
    return {
        "schema": "day0.ops-verify/1",
        "device": {"name": place, "torch": str(machine.device), "shown": machine.shown},
        "model": model,
        "contract": [asdict(breach) for breach in machine.breaches],
        "roofline": None if machine.roofline is None else asdict(machine.roofline),
        "results": [_result(one, entry["devices"][place]) for one, entry in zip(found, entries, strict=True)],
        "left_out": left_out,
        "devices": devices,
        "runs": {run: run_record(_versions(machine, found), COMMAND + (f" --model {model}" if model else ""))},
        "entries": entries,
    }


def exit_code(document: dict[str, Any]) -> ExitCode:
    """No where anything is wrong, cannot say where something was asked for and not tried."""
    if document["contract"] or any(result["status"] != "verified" for result in document["results"]):
        return ExitCode.NO
    return ExitCode.CANNOT_SAY if any(one["asked"] for one in document["left_out"]) else ExitCode.YES


def render(document: dict[str, Any], console: Console) -> None:
    device = document["device"]
    console.print(f"device {device['torch']} ({device['shown']}), column {device['name']}")
    for breach in document["contract"]:
        console.print(f"LACKS {breach['clause']}: {breach['found']} ({breach['why']})", soft_wrap=True)
    if not document["contract"]:
        console.print("every clause of the device contract is kept")
    for one in document["results"]:
        share = "" if one["share"] is None else f", {one['share']:.0%} of copy bandwidth at best"
        numbers = (
            "" if one["ratio"] is None else f"{one['ratio']:.2g} of the allowance, noise {one['noise']:.2g}{share}"
        )
        console.print(
            f"{one['operator']:32} {one['provider']:16} {one['status']:10} {one['trials']:3} sizes  {numbers}"
        )
        for fault in one["faults"][:3]:
            console.print(f"  {fault}", soft_wrap=True)
    for one in document["left_out"]:
        console.print(f"not tried: {one['operator']} {one['provider']}: {one['why']}", soft_wrap=True)


def _wanted(names: Sequence[str], model: str | None) -> tuple[list[tuple[str, Cases]], list[dict[str, Any]]]:
    """Operators with sizes to try, and those that nothing can be tried of."""
    if model is None:
        chosen = [name for name in names or CASES if name in CASES]
        lacking = [name for name in names if name not in CASES]
        return [(name, CASES[name]) for name in chosen], [_missing(name, "the runtime lacks it") for name in lacking]
    wanted, left_out = [], []
    for need in take_inventory(read_profile(resolve(model))).needs:
        if names and need.name not in names:
            continue
        cases, why = sizes_of_need(need.name, need.shapes, need.attributes)
        if cases is None:
            left_out.append(_missing(need.name, why))
        else:
            wanted.append((need.name, cases))
    return _joined(wanted), left_out


def _joined(wanted: Sequence[tuple[str, Cases]]) -> list[tuple[str, Cases]]:
    """One row for what an operator is tried at with the same attributes."""
    found: dict[tuple[str, str], tuple[str, Cases]] = {}
    for name, cases in wanted:
        key = name, repr(cases.attributes)
        old = found.get(key, (name, Cases(cases.spans, (), cases.attributes, cases.constraints)))[1]
        sizes = (*old.sizes, *(one for one in cases.sizes if one not in old.sizes))
        found[key] = name, Cases(cases.spans, sizes, cases.attributes, cases.constraints)
    return list(found.values())


def _missing(operator: str, why: str, provider: str = "", *, asked: bool = True) -> dict[str, Any]:
    """What was not tried; `asked` where the answer cannot do without. A kernel for other devices is not missed."""
    return {"operator": operator, "provider": provider, "why": why, "asked": asked}


def _pairs(wanted: Sequence[tuple[str, Cases]], machine: Machine, provider: str) -> Iterator[tuple[Subject, Cases]]:
    """Every kernel with what it is tried at."""
    known = list(subjects(list(dict.fromkeys(name for name, _ in wanted)), machine.device, provider))
    for name, cases in wanted:
        yield from ((subject, cases) for subject in known if subject.operator == name)


def _progress(subject: Subject) -> Any:
    console = status_console()

    def told(one: Tried) -> None:
        for fault in one.faults:
            console.print(f"{subject.operator} {subject.provider}: {fault}", soft_wrap=True)

    return told


def _place(machine: Machine) -> tuple[str, dict[str, Any]]:
    """The column's name and the devices that a whitelist with it must list."""
    known = load_whitelist().devices
    name = called(known, machine.shown) or machine.shown.lower().replace(" ", "-")
    if name not in known:
        return name, {name: {}}
    device = known[name]
    facts = {"marker": device.marker, "shows": device.shows, "family": device.family, "facts": dict(device.facts)}
    return name, {name: {key: value for key, value in facts.items() if value}}


def _versions(machine: Machine, found: Sequence[Found]) -> dict[str, str]:
    compiled = any(one.subject.provider == TRITON for one in found)
    return {**machine.versions, **({"triton": version("triton")} if compiled else {})}


def _entry(one: Found, place: str, run: str) -> dict[str, Any]:
    measured = column(one.subject.operator, one.trials, run, one.cases, kernel_sources(one.subject.module))
    if one.raised:
        measured = {"status": "unverified", "reason": one.raised}
    return {"operator": one.subject.operator, "provider": one.subject.provider, "devices": {place: measured}}


def _result(one: Found, measured: dict[str, Any]) -> dict[str, Any]:
    outcomes = [outcome for trial in one.trials for outcome in trial.outcomes.values()]
    faults = [fault for trial in one.trials for fault in trial.faults]
    return {
        "operator": one.subject.operator,
        "provider": one.subject.provider,
        "status": measured["status"],
        "trials": len(one.trials),
        "ratio": max((outcome.agreement.ratio for outcome in outcomes), default=None),
        "noise": max((outcome.noise for outcome in outcomes), default=None),
        "share": one.share,
        "faults": [*faults, *([one.raised] if one.raised else [])],
    }
