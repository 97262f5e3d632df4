"""`day0 report verify FOLDER`: does the evidence of a run still say what its verdict says?"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from day0.cli.output import emit
from day0.errors import ExitCode

EXIT_CODES = {"holds": ExitCode.YES, "altered": ExitCode.NO, "incomplete": ExitCode.CANNOT_SAY}


class Action(StrEnum):
    """What can be done with a report."""

    VERIFY = "verify"


def command(
    action: Annotated[Action, typer.Argument(metavar="verify", help="Judge every check again from the evidence.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="What day0 run-checklist wrote.")],
    digest: Annotated[
        str | None, typer.Option(metavar="SHA256", help="The bundle's digest as the run printed it.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the JSON document here as well.")] = None,
) -> ExitCode:
    """Recompute statuses, counts and verdict of a run from what it measured, and name whatever does not hold."""
    from day0.report.bundle_check import check_bundle
    from day0.report.bundle_text import render_bundle_check

    assert action is Action.VERIFY
    found = check_bundle(folder, digest)
    emit(found, as_json=json, output=output, render=lambda console: render_bundle_check(found, console))
    return EXIT_CODES[found.verdict]
