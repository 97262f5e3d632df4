"""`day0 pull MODEL`: a model of a hub into the local cache, checked against the hub's sizes and digests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from day0.cli.output import emit
from day0.errors import ExitCode
from day0.source.resolve import pull

if TYPE_CHECKING:
    from rich.console import Console


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Hub id: org/name or org/name@revision.")],
    weights: Annotated[
        bool, typer.Option("--weights", help="The weights and the tokenizer too. Default: config and tensor headers.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the JSON document to FILE too.")] = None,
) -> ExitCode:
    """Download what is not in the cache yet, and check all of it; run again, it goes on with what is lacking."""
    files, checked = pull(model, weights=weights)
    document = {
        "schema": "day0.pull/1",
        "model": files.id,
        "revision": files.revision,
        "folder": files.folder,
        "weights": weights,
        "shards": len(files.shards),
        "tensors": None if files.tensors is None else len(files.tensors),
        "weight_bytes": files.weight_bytes,
        "files": checked,
        "bytes": sum(file.bytes for file in checked),
        "findings": files.findings,
    }
    emit(document, as_json=as_json, output=output, render=lambda console: _render(document, console))
    return ExitCode.YES


def _render(document: dict[str, Any], console: Console) -> None:
    model, revision = document["model"], document["revision"]
    console.print(f"{model} at {revision}")
    console.print(
        f"{len(document['files'])} files, {document['bytes']:,} bytes, sizes and digests as the hub lists them"
    )
    if document["tensors"] is not None:
        what = "" if document["weights"] else " (headers only)"
        shards, nbytes = document["shards"], document["weight_bytes"]
        console.print(f"{document['tensors']:,} tensors of {nbytes:,} bytes in {shards} shards{what}")
    for finding in document["findings"]:
        console.print(f"{finding.severity}: {finding.where}: {finding.message}")
    console.print(f"in {document['folder']}", soft_wrap=True)
    console.print(f"next: day0 {'run-checklist' if document['weights'] else 'inspect'} {model}@{revision}")
