"""The JSON schemas of a bundle's documents, made from the records themselves; `docs/schema` holds them as published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from day0.checklist.checklist import ChecklistResult
from day0.checklist.evidence import Evidence
from day0.report.bundle import Manifest
from day0.report.bundle_check import BundleCheck

DOCUMENTS: Mapping[str, type] = {
    "day0.checklist-1": ChecklistResult,
    "day0.evidence-1": Evidence,
    "day0.bundle-1": Manifest,
    "day0.bundle-check-1": BundleCheck,
}
"""File names, without `.json`, and the record that each describes."""


def schema_files() -> dict[str, bytes]:
    """The schemas by file name, in draft 2020-12."""
    return {f"{name}.json": _file(name, kind) for name, kind in DOCUMENTS.items()}


def _file(name: str, kind: type) -> bytes:
    schema = msgspec.json.schema(kind)
    for one in schema["$defs"].values():
        _always_written(one)
    pinned = schema["$defs"][kind.__name__]["properties"]["schema"]
    pinned["const"] = pinned.pop("default")
    text = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": name.replace("-1", "/1"), **schema}
    return msgspec.json.format(msgspec.json.encode(text), indent=2) + b"\n"


def _always_written(definition: dict[str, Any]) -> None:
    """Fields with a default are written all the same: a document without one is not ours."""
    definition["required"] = list(definition["properties"])
    definition.pop("description", None)  # docstrings are for readers of the code
