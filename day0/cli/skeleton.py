"""`day0 skeleton MODEL OUT`: a tiny random checkpoint of an architecture, every feature on."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from day0.cli.output import emit
from day0.errors import ExitCode, InputError
from day0.source.resolve import resolve

if TYPE_CHECKING:
    from rich.console import Console


class Scale(StrEnum):
    TINY = "tiny"
    FULL = "full"


def command(
    model: Annotated[str, typer.Argument(help="recipe:NAME, a folder, a config.json or a hub id.")],
    out: Annotated[Path, typer.Argument(help="Folder to write; must be new or empty.")],
    scale: Annotated[Scale, typer.Option(help="tiny: small sizes with real numbers.")] = Scale.TINY,
    seed: Annotated[int, typer.Option(help="Seed of the random weights.")] = 0,
    shards: Annotated[int, typer.Option(min=1, max=64, help="Number of safetensors files.")] = 2,
    force: Annotated[bool, typer.Option("--force", help="Replace a folder that a skeleton was written to.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write the JSON document to this file too.")] = None,
) -> ExitCode:
    """Write a random checkpoint with the tensor names, dtypes and files of a real release."""
    if scale is Scale.FULL:
        raise InputError("full-size skeletons are not written yet", where="--scale", hint="--scale tiny works")
    from day0.profile.parameters import count_parameters
    from day0.runtime.skeleton import write_tiny

    profile = write_tiny(resolve(model), out, seed=seed, shards=shards, force=force)
    parameters = count_parameters(profile).total
    document = {
        "schema": "day0.skeleton/1",
        "model": model,
        "out": str(out),
        "scale": scale.value,
        "seed": seed,
        "family": profile.family,
        "layers": profile.num_layers,
        "parameters": parameters,
        "bytes": sum(file.stat().st_size for file in out.iterdir()),
    }

    def render(console: Console) -> None:
        console.print(f"{out}: {profile.family}, {profile.num_layers} layers, {parameters:,} parameters")
        console.print(f"next: day0 inspect {out}")

    emit(document, as_json=as_json, output=output, render=render)
    return ExitCode.YES
