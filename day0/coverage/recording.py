"""Measured columns into the whitelist's one layout: devices, runs, entries in the order of the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from day0.operators import OPERATORS
from day0.source.data_files import OneLine, dump_table

HEADER = """\
# Which provider has which operator on which device, under which constraints, and what was measured.
# docs/inspect.md explains the format. The day0 columns are written by scripts/record_operator_evidence.py; those of
# libraries say what their sources claim, for the chips of a family within the constraints, and are measured by nobody.
"""


def run_record(versions: Mapping[str, str], command: str) -> dict[str, Any]:
    """Where a batch of measurements comes from, today."""
    return {"versions": dict(versions), "date": date.today().isoformat(), "command": command}


def merged(document: Mapping[str, Any], columns: Sequence[Any], runs: Mapping[str, Any]) -> dict[str, Any]:
    """A whitelist's document with these columns in place of those of the same operator, provider and device."""
    kept = {(entry["operator"], entry["provider"]): entry for entry in document.get("entries", [])}
    for entry in columns:
        key = entry["operator"], entry["provider"]
        old = kept.get(key, {"devices": {}})
        kept[key] = {**entry, "devices": {**old["devices"], **entry["devices"]}}
    return {**document, "runs": {**document.get("runs", {}), **runs}, "entries": list(kept.values())}


def whitelist_text(document: Mapping[str, Any], header: str = HEADER) -> str:
    """The file: `document` with devices, versions, constraints and evidence on a line each."""
    order = {name: position for position, name in enumerate(OPERATORS)}
    entries = []
    for entry in sorted(document.get("entries", []), key=lambda entry: order[entry["operator"]]):
        entries.append({**entry, "devices": {place: _laid_out(column) for place, column in entry["devices"].items()}})
    runs = {name: {**run, "versions": OneLine(run["versions"])} for name, run in document.get("runs", {}).items()}
    devices = {name: OneLine(device) for name, device in document["devices"].items()}
    return header + dump_table({"devices": devices, "runs": runs, "entries": entries})


def _laid_out(column: Mapping[str, Any]) -> dict[str, Any]:
    """Constraints and sources by line, evidence last."""
    found = dict(column)
    if "constraints" in found:
        found["constraints"] = {fact: OneLine(bound) for fact, bound in found["constraints"].items()}
    if rows := found.pop("evidence", ()):
        found["evidence"] = [OneLine(row) for row in rows]
    return found
