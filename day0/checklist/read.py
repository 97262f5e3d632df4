"""Reads a checklist from YAML. Whatever nobody would have read is refused, with file and key."""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from day0.checklist.checklist import BOUNDS, PHASES, Checklist, CheckSpec, Probe
from day0.errors import InputError
from day0.source.data_files import data_path, list_data, load_yaml

MOST = 1_000_000
"""The largest parameter. All are counts, of tokens, requests, tensors; a larger one would run for days."""
_CHECK_KEYS = tuple(entry.name for entry in fields(CheckSpec) if entry.name != "phase")
_BOUND_KEYS = (*BOUNDS, "max_of_baseline", "slowdown_of_baseline")


def shipped_checklists() -> dict[str, Path]:
    """The packaged checklists by name."""
    return {path.stem: path for path in list_data("checklists", ".yaml")}


def find_checklist(name_or_file: str) -> Path:
    """A packaged checklist by name, or the user's own file."""
    shipped = shipped_checklists()
    if name_or_file in shipped:
        return data_path("checklists", f"{name_or_file}.yaml")
    path = Path(name_or_file)
    if path.is_file():
        return path
    raise InputError(
        f"no checklist {name_or_file!r}", where="--checklist", hint=f"one of {', '.join(shipped)}, or a YAML file"
    )


def read_checklist(path: Path, probes: Mapping[str, Probe]) -> Checklist:
    """The checks of a file in the order of the phases; `probes` says which probes and parameters exist."""
    document = _mapping(load_yaml(path), str(path))
    _only_known(document, ("title", "phases"), str(path))
    phases = _mapping(document.get("phases"), f"{path}: phases")
    _only_known(phases, PHASES, f"{path}: phases")
    checks: list[CheckSpec] = []
    seen: set[str] = set()
    for phase in PHASES:
        entries = phases.get(phase, [])
        if not isinstance(entries, list):
            raise InputError("must be a list of checks", where=f"{path}: phases.{phase}")
        for index, entry in enumerate(entries):
            spec = _read_check(entry, phase, probes, f"{path}: phases.{phase}[{index}]")
            if spec.id in seen:
                raise InputError(f"check id {spec.id!r} is used twice", where=f"{path}: phases.{phase}[{index}]")
            seen.add(spec.id)
            checks.append(spec)
    if not checks:
        raise InputError("a checklist without checks decides nothing", where=f"{path}: phases")
    return Checklist(name=path.stem, title=str(document.get("title", path.stem)), checks=tuple(checks))


def _read_check(entry: object, phase: str, probes: Mapping[str, Probe], where: str) -> CheckSpec:
    check = _mapping(entry, where)
    _only_known(check, _CHECK_KEYS, where)
    for key in ("id", "title", "probe"):
        if not isinstance(check.get(key), str) or not check[key]:
            raise InputError(f"{key!r} is missing or not a text", where=where)
    where = f"{where} ({check['id']})"
    if check["probe"] not in probes:
        raise InputError(f"no probe {check['probe']!r}", where=where, hint=f"known: {', '.join(probes)}")
    if not isinstance(check.get("required", True), bool):
        raise InputError("'required' must be true or false", where=where)
    return CheckSpec(
        id=check["id"],
        phase=phase,
        title=check["title"],
        probe=check["probe"],
        parameters=_read_parameters(check.get("parameters") or {}, probes[check["probe"]], where),
        limits=_read_limits(check.get("limits") or {}, where),
        required=check.get("required", True),
    )


def _read_parameters(parameters: object, probe: Probe, where: str) -> dict[str, Any]:
    """Parameters checked and converted by the annotations of the probe's keyword-only arguments."""
    given = _mapping(parameters, f"{where}.parameters")
    known = {
        name: entry
        for name, entry in inspect.signature(probe.run).parameters.items()
        if entry.kind is inspect.Parameter.KEYWORD_ONLY
    }
    _only_known(given, tuple(known), f"{where}.parameters")
    hints = typing.get_type_hints(probe.run)
    converted: dict[str, Any] = {}
    for name, value in given.items():
        try:
            converted[name] = msgspec.convert(value, hints[name])
        except msgspec.ValidationError as fault:
            raise InputError(f"{fault}, got {value!r}", where=f"{where}.parameters.{name}") from None
        numbers = value if isinstance(value, list) else [value]
        if any(isinstance(number, int) and not 1 <= number <= MOST for number in numbers):
            raise InputError(f"must be from 1 to {MOST:,}, got {value!r}", where=f"{where}.parameters.{name}")
    for name, entry in known.items():
        if entry.default is inspect.Parameter.empty and name not in converted:
            raise InputError(f"the probe needs a value for {name!r}", where=f"{where}.parameters")
    return converted


def _read_limits(limits: object, where: str) -> dict[str, dict[str, Any]]:
    read: dict[str, dict[str, Any]] = {}
    for name, bounds in _mapping(limits, f"{where}.limits").items():
        place = f"{where}.limits.{name}"
        read[name] = _mapping(bounds, place)
        _only_known(read[name], _BOUND_KEYS, place)
        for bound, value in read[name].items():
            if bound != "equals" and (isinstance(value, bool) or not isinstance(value, (int, float))):
                raise InputError(f"{bound} must be a number, got {value!r}", where=place)
            if isinstance(value, float) and math.isnan(value):
                raise InputError(f"{bound} is not a number: nothing could keep or break it", where=place)
        if not read[name]:
            raise InputError(f"a limit needs one of {', '.join(_BOUND_KEYS)}", where=place)
    return read


def _mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"must be a mapping, got {type(value).__name__}", where=where)
    for key in value:
        if not isinstance(key, str):
            raise InputError(f"keys must be texts, got {key!r}", where=where)
    return value


def _only_known(given: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = [key for key in given if key not in known]
    if unknown:
        raise InputError(f"unknown key {unknown[0]!r}", where=where, hint=f"known: {', '.join(known)}")
