"""`day0 ops`: the operator table and its evidence, or trials of kernels on this machine that make such evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from day0.cli.output import check_writable, emit, write_file
from day0.coverage import Column, Whitelist, load_whitelist
from day0.coverage.recording import merged, whitelist_text
from day0.coverage.sources import other_versions
from day0.errors import ExitCode, InputError
from day0.operators import OPERATORS
from day0.source.data_files import load_yaml

if TYPE_CHECKING:
    from rich.console import Console


def command(
    action: Annotated[Literal["list", "verify"], typer.Argument(help="List the table, or verify kernels here.")],
    operators: Annotated[list[str] | None, typer.Argument(metavar="[OPERATOR]...", help="Default: all.")] = None,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Try the sizes that this model needs, and its operators alone.")
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="NAME", help="list: a column. verify: a torch device; default: the accelerator.")
    ] = "",
    provider: Annotated[str, typer.Option(metavar="NAME", help="This provider's kernels alone.")] = "",
    whitelist: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Your whitelist: list reads it too, verify writes evidence there."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the JSON document to FILE too.")] = None,
) -> ExitCode:
    """Say who has which operator and what was measured, or measure it on this machine."""
    for name in operators or ():
        if name not in OPERATORS:
            raise InputError(f"no operator is called {name!r}", hint="docs/operators.md lists them")
    for path in (output, whitelist if action == "verify" else None):
        if path is not None:
            check_writable(path)
    if action == "list":
        if model is not None:
            raise InputError("means something only with verify", where="--model", hint="day0 inspect lists its needs")
        document = listed(load_whitelist(whitelist), operators or [*OPERATORS], device, provider)
        emit(document, as_json=as_json, output=output, render=lambda console: _render_list(document, console))
        return ExitCode.YES
    from day0.cli import ops_verify  # torch takes seconds to import

    document = ops_verify.verified(operators or [], model, device or "auto", provider)
    if whitelist is not None:
        write_evidence(document, whitelist)
    emit(document, as_json=as_json, output=output, render=lambda console: ops_verify.render(document, console))
    return ops_verify.exit_code(document)


def listed(table: Whitelist, names: list[str], device: str, provider: str) -> dict[str, Any]:
    """Every column of these operators; `stale` says what changed since the measurements, "" for nothing."""
    places = {*table.devices, *table.families}
    if device and device not in places:
        raise InputError(f"no column is for {device!r}", where="--device", hint=f"known: {', '.join(sorted(places))}")
    here = table.present_device()
    rows = [
        {
            "operator": operator,
            "provider": offer,
            "device": place,
            "status": column.status,
            "measurements": len(column.evidence),
            "worst_ratio": max((row.ratio for row in column.evidence), default=None),
            "date": max((row.date.isoformat() for row in column.evidence), default=None),
            "stale": _stale(column, here=place == here),
            "reason": column.reason,
        }
        for (operator, offer, place), column in table.columns.items()
        if operator in names and device in ("", place) and provider in ("", offer)
    ]
    return {"schema": "day0.ops-list/1", "device": here, "columns": rows}


def _stale(column: Column, *, here: bool) -> str:
    """Changed code, and for the device that is here other versions of what it ran on."""
    versions = other_versions(column.evidence[0].versions) if here and column.evidence else ()
    return "; ".join(part for part in (column.stale, *versions) if part)


def _render_list(document: dict[str, Any], console: Console) -> None:
    for row in document["columns"]:
        ratio = (
            "" if row["worst_ratio"] is None else f"  {row['measurements']} measured, worst {row['worst_ratio']:.2g}"
        )
        stale = f"  STALE: {row['stale']}" if row["stale"] else ""
        who = f"{row['operator']:34} {row['provider']:16} {row['device']:6}"
        console.print(f"{who} {row['status']:10}{ratio}{stale}", soft_wrap=True)
    count = len(document["columns"])
    console.print(f"{count} columns; {document['device']} is here. next: day0 ops verify OPERATOR")


def write_evidence(document: dict[str, Any], path: Path) -> None:
    """Lay the measured columns over a whitelist file, which is made where there is none."""
    old = (load_yaml(path) or {}) if path.exists() else {}
    old["devices"] = {**document["devices"], **old.get("devices", {})}
    text = whitelist_text(merged(old, document["entries"], document["runs"]))
    write_file(path, text.encode())
