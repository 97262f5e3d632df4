"""The folder of evidence that a run leaves: which files it has, and their hashes in a manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

import day0
from day0.checklist.checklist import ChecklistResult
from day0.checklist.evidence import Evidence, to_json
from day0.report.checklist_html import html_document
from day0.report.checklist_junit import junit_document

MANIFEST = "manifest.json"
RESULT, EVIDENCE, LIST, PAGE, JUNIT = "checklist.json", "evidence.json", "checklist.yaml", "report.html", "junit.xml"
BASELINE = "baseline.json"
ALWAYS = (RESULT, EVIDENCE, LIST, PAGE, JUNIT)
"""The files of every bundle; with `--baseline` there is a copy of that too."""


@dataclass(frozen=True, slots=True)
class FileFact:
    """Size and SHA-256 of one file of the bundle."""

    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The document manifest.json. `day0` is the version that drew the pages."""

    schema: str = "day0.bundle/1"
    day0: str = day0.__version__
    files: Mapping[str, FileFact]


def bundle_files(
    document: bytes, result: ChecklistResult, evidence: Evidence, checklist: bytes, baseline: bytes | None
) -> dict[str, bytes]:
    """All files of a bundle by name, the manifest last. `document` is `result` as it was printed."""
    files = {
        RESULT: document,
        EVIDENCE: to_json(evidence),
        LIST: checklist,
        **({} if baseline is None else {BASELINE: baseline}),
        PAGE: html_document(result).encode(),
        JUNIT: junit_document(result),
    }
    return {**files, MANIFEST: manifest_of(files)}


def manifest_of(files: Mapping[str, bytes]) -> bytes:
    """The manifest of these files, as it is stored."""
    facts = {name: FileFact(hash_of(data), len(data)) for name, data in files.items() if name != MANIFEST}
    return msgspec.json.format(msgspec.json.encode(Manifest(files=facts)), indent=2) + b"\n"


def hash_of(data: bytes) -> str:
    """SHA-256 in hexadecimal. That of the manifest stands for the whole bundle."""
    return hashlib.sha256(data).hexdigest()
