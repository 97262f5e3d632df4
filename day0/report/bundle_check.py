"""A bundle judged again: hashes, every status and the verdict from stored measurements, pages from the result."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

import day0
from day0.checklist.checklist import ChecklistResult, CheckSpec
from day0.checklist.evidence import Evidence, disagreements, from_json, replay, to_json
from day0.errors import InputError
from day0.report.bundle import ALWAYS, BASELINE, EVIDENCE, JUNIT, LIST, MANIFEST, PAGE, RESULT, Manifest, hash_of
from day0.report.checklist_html import html_document
from day0.report.checklist_junit import junit_document
from day0.source.data_files import load_yaml

ADDED_BY_REFERENCE = ("numerics.reference", "numerics.endpoint")
"""Probes that `--reference` makes required, whatever the list says."""
_DRAWING = re.compile(r"<svg .*?</svg>", re.DOTALL)
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Altered:
    """One thing that does not hold: in which file, at which place in it, and what is wrong."""

    file: str
    place: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleCheck:
    """The document of `day0 report verify`. `holds` needs nothing altered and nothing missing.

    `digest` is the SHA-256 of the manifest: whoever has it from elsewhere need not trust the folder.
    """

    schema: str = "day0.bundle-check/1"
    verdict: Literal["holds", "altered", "incomplete"]
    run: str | None
    digest: str | None
    checks: int
    altered: tuple[Altered, ...]
    missing: tuple[str, ...]


def check_bundle(folder: Path, digest: str | None = None) -> BundleCheck:
    """Judge a bundle again. Raises InputError where there is no folder, or a file of it is no JSON or YAML at all."""
    if not folder.is_dir():
        raise InputError("no such folder", where=str(folder), hint="the folder that day0 run-checklist wrote")
    files = {name: (folder / name).read_bytes() for name in (MANIFEST, *ALWAYS, BASELINE) if (folder / name).is_file()}
    missing = [name for name in (MANIFEST, *ALWAYS) if name not in files]
    if missing == [MANIFEST, *ALWAYS]:
        raise InputError("holds no evidence of a run", where=str(folder), hint=f"wanted {', '.join(ALWAYS)}")
    altered = [*_against_manifest(files, digest, missing)]
    evidence = _read_evidence(files, altered)
    if evidence is not None:
        result = _replayed(evidence, altered)
        altered += _against_sources(evidence, folder, files, missing)
        if result is not None:
            altered += _against_documents(result, files)
    document = _json(RESULT, files[RESULT]) if RESULT in files else {}
    found = tuple(dict.fromkeys(altered))
    return BundleCheck(
        verdict="altered" if found else "incomplete" if missing else "holds",
        run=document.get("verdict") if isinstance(document, dict) else None,
        digest=hash_of(files[MANIFEST]) if MANIFEST in files else None,
        checks=0 if evidence is None else len(evidence.records),
        altered=found,
        missing=tuple(missing),
    )


def _json(name: str, data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as fault:
        raise InputError(f"is no JSON: {fault}", where=name) from None


def _against_manifest(files: Mapping[str, bytes], digest: str | None, missing: list[str]) -> Iterator[Altered]:
    """Files whose bytes are not those of the manifest; a baseline that it lists and that is gone is missing."""
    if MANIFEST not in files:
        return
    if digest is not None and digest.removeprefix("sha256:") != hash_of(files[MANIFEST]):
        yield Altered(MANIFEST, "", f"its SHA-256 is {hash_of(files[MANIFEST])}, not the one given")
    try:
        manifest = msgspec.convert(_json(MANIFEST, files[MANIFEST]), Manifest)
    except msgspec.ValidationError as fault:
        yield Altered(MANIFEST, "", f"is no manifest: {fault}")
        return
    if manifest.schema != Manifest.__dataclass_fields__["schema"].default:
        yield Altered(MANIFEST, "schema", f"is {manifest.schema!r}")
    for name in (*ALWAYS, BASELINE):
        fact = manifest.files.get(name)
        if fact is not None and name not in files and name not in missing:
            missing.append(name)
        if name not in files:
            continue
        if fact is None:
            yield Altered(MANIFEST, f"files.{name}", "the manifest does not list this file")
        elif (fact.sha256, fact.bytes) != (hash_of(files[name]), len(files[name])):
            yield Altered(name, "", "its size or SHA-256 is not that of the manifest")


def _read_evidence(files: Mapping[str, bytes], altered: list[Altered]) -> Evidence | None:
    if EVIDENCE not in files:
        return None
    stored = _json(EVIDENCE, files[EVIDENCE])
    try:
        evidence = from_json(files[EVIDENCE])
    except msgspec.ValidationError as fault:
        altered.append(_misfit(str(fault), stored))
        return None
    # What the reader has no place for, or fills in by itself, would otherwise go unseen.
    altered += _differences(EVIDENCE, stored, msgspec.json.decode(to_json(evidence)), "what can be read of it is")
    if evidence.schema != Evidence.__dataclass_fields__["schema"].default:
        altered.append(Altered(EVIDENCE, "schema", f"is {evidence.schema!r}"))
    return evidence


def _misfit(message: str, stored: Any) -> Altered:
    """What no record can hold, with the number of a record replaced by the name of its check where it has one."""
    what, _, path = message.partition(" - at `$.")
    found = re.match(r"records\[(\d+)\]", path)
    place = path.rstrip("`")
    if found is not None:
        record = stored["records"][int(found[1])]
        spec = record.get("spec") if isinstance(record, dict) else None
        name = spec.get("id") if isinstance(spec, dict) else found[1]
        place = f"records[{name}]{path.removeprefix(found[0])}".rstrip("`")
    return Altered(EVIDENCE, place, what)


def _replayed(evidence: Evidence, altered: list[Altered]) -> ChecklistResult | None:
    for record in evidence.records:
        if record.seen() is None:
            altered.append(Altered(EVIDENCE, record.spec.id, "does not say one thing that was seen"))
        if record.measured is not None:
            wrong = disagreements(record.measured.values)
            altered += [Altered(EVIDENCE, f"{record.spec.id}.measured", text) for text in wrong]
    try:
        return replay(evidence)
    except (TypeError, ValueError, ArithmeticError) as fault:
        altered.append(Altered(EVIDENCE, "", f"cannot be judged: {fault}"))
        return None


def _against_sources(
    evidence: Evidence, folder: Path, files: Mapping[str, bytes], missing: list[str]
) -> Iterator[Altered]:
    """The checks against the list they were read from, and what was before against the baseline."""
    if LIST in files:
        yield from _against_list([record.spec for record in evidence.records], load_yaml(folder / LIST))
    with_baseline = evidence.facts.get("baseline") is not None
    if with_baseline and BASELINE not in files and BASELINE not in missing:
        missing.append(BASELINE)
    document = _json(BASELINE, files[BASELINE]) if BASELINE in files else {}
    measured = document.get("measured", {}) if isinstance(document, dict) else {}
    for record in evidence.records:
        known = measured.get(record.spec.id) if isinstance(measured, dict) else None
        if BASELINE in files or not with_baseline:
            yield from _differences(
                EVIDENCE, _plain(record.before), known, "the baseline has", f"{record.spec.id}.before"
            )


def _against_list(specs: list[CheckSpec], document: Any) -> Iterator[Altered]:
    phases = document.get("phases") if isinstance(document, dict) else None
    entries = {
        entry.get("id"): {"phase": phase, **entry}
        for phase, checks in (phases.items() if isinstance(phases, dict) else ())
        for entry in (checks if isinstance(checks, list) else ())
        if isinstance(entry, dict)
    }
    for name in entries.keys() - {spec.id for spec in specs}:
        yield Altered(EVIDENCE, str(name), f"{LIST} has this check, the evidence has not")
    for spec in specs:
        if spec.id not in entries:
            yield Altered(LIST, spec.id, "the list has no such check")
            continue
        entry = {"parameters": {}, "limits": {}, "required": True, **entries[spec.id]}
        entry = {name: {} if value is None else value for name, value in entry.items()}
        if spec.required and spec.probe in ADDED_BY_REFERENCE:
            entry["required"] = True
        yield from _differences(EVIDENCE, _plain(spec), entry, f"{LIST} has", f"{spec.id}")


def _against_documents(result: ChecklistResult, files: Mapping[str, bytes]) -> Iterator[Altered]:
    """The result as stored, the JUnit file and the page, against those that the evidence gives."""
    if RESULT in files:
        yield from _differences(RESULT, _json(RESULT, files[RESULT]), _plain(result), "the evidence gives")
    if JUNIT in files and files[JUNIT] != junit_document(result):
        yield Altered(JUNIT, "", "is not what the evidence gives")
    drawn_here = result.environment.get("versions", {}).get("day0") == day0.__version__
    if PAGE in files and drawn_here and _without_drawings(files[PAGE]) != html_document(result, drawn=False):
        yield Altered(PAGE, "", "is not what the evidence gives")


def _without_drawings(page: bytes) -> str:
    """Curves are drawn by a library that draws otherwise from version to version; their numbers are in the JSON."""
    return _DRAWING.sub("", page.decode(errors="replace"))


def _plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _differences(file: str, stored: Any, wanted: Any, words: str, place: str = "") -> Iterator[Altered]:
    """Leaves in which two JSON values part, by the path to them."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        for name in [*stored, *(name for name in wanted if name not in stored)]:
            below = f"{place}.{name}".lstrip(".")
            yield from _differences(file, stored.get(name, _ABSENT), wanted.get(name, _ABSENT), words, below)
    elif isinstance(stored, list) and isinstance(wanted, list) and len(stored) == len(wanted):
        for index, (one, other) in enumerate(zip(stored, wanted, strict=True)):
            yield from _differences(file, one, other, words, f"{place}{_entry(one, index)}")
    elif stored != wanted or isinstance(stored, bool) != isinstance(wanted, bool):
        yield Altered(file, place, f"is {_said(stored)}, {words} {_said(wanted)}")


def _entry(value: Any, index: int) -> str:
    """An entry of a list by its own name, where it has one."""
    name = value.get("id") or value.get("name") if isinstance(value, dict) else None
    return f"[{name if isinstance(name, str) else index}]"


def _said(value: Any) -> str:
    if value is _ABSENT:
        return "not there"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else f"{text[:77]}..."
