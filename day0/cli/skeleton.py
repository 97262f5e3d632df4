"""`day0 skeleton MODEL OUT`: a checkpoint of an architecture without its weights, tiny and random or full-size."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from day0.cli.output import emit
from day0.errors import ExitCode
from day0.profile.parameters import count_parameters
from day0.source.model_files import ModelFiles
from day0.source.resolve import resolve
from day0.source.sparse_shards import disk_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from day0.profile.profile import ArchitectureProfile

TINY_SHARDS = 2


class Scale(StrEnum):
    TINY = "tiny"
    FULL = "full"


def command(
    model: Annotated[str, typer.Argument(help="recipe:NAME, a folder, a config.json or a hub id.")],
    out: Annotated[Path, typer.Argument(help="Folder to write; must be new or empty.")],
    scale: Annotated[
        Scale, typer.Option(help="tiny: small sizes with real numbers. full: real sizes, sparse files of zeros.")
    ] = Scale.TINY,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the random weights (tiny).")] = 0,
    shards: Annotated[
        int | None,
        typer.Option(min=1, max=99_999, help="Number of safetensors files. [tiny: 2, full: as released, or 5 GB each]"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a folder that a skeleton was written to.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write the JSON document to this file too.")] = None,
) -> ExitCode:
    """Write a checkpoint with the tensor names, dtypes and files of a real release, without its weights."""
    files = resolve(model)
    facts: dict[str, Any]
    if scale is Scale.TINY:
        profile, facts = _tiny(files, out, seed=seed, shards=shards or TINY_SHARDS, force=force)
    else:
        profile, facts = _full(files, out, shards=shards, force=force)
    written = list(out.iterdir())
    document = {
        "schema": "day0.skeleton/1",
        "model": model,
        "out": str(out),
        "scale": scale.value,
        **facts,
        "family": profile.family,
        "layers": profile.num_layers,
        "parameters": count_parameters(profile).total,
        "bytes": sum(file.stat().st_size for file in written),
        "disk_bytes": sum(disk_bytes(file) for file in written),
    }
    emit(document, as_json=as_json, output=output, render=lambda console: _render(document, console))
    return ExitCode.YES


def _tiny(
    files: ModelFiles, out: Path, *, seed: int, shards: int, force: bool
) -> tuple[ArchitectureProfile, dict[str, Any]]:
    from day0.runtime.skeleton import write_tiny  # torch makes the numbers

    return write_tiny(files, out, seed=seed, shards=shards, force=force), {"seed": seed}


def _full(
    files: ModelFiles, out: Path, *, shards: int | None, force: bool
) -> tuple[ArchitectureProfile, dict[str, Any]]:
    from day0.runtime.skeleton_full import write_full  # with the tokenizers library

    made = write_full(files, out, shards=shards, force=force)
    return made.profile, {"shards": made.shards, "tensors": made.tensors, "weight_bytes": made.weight_bytes}


def _render(document: dict[str, Any], console: Console) -> None:
    out = document["out"]
    console.print(f"{out}: {document['family']}, {document['layers']} layers, {document['parameters']:,} parameters")
    if document["scale"] == Scale.FULL:
        console.print(
            f"{document['tensors']:,} tensors of {document['weight_bytes']:,} bytes in {document['shards']} shards;"
            f" on the disk they take {document['disk_bytes']:,}"
        )
    console.print(f"next: day0 inspect {out}")
