"""What a checklist found of the faults that were put in, for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from day0.checklist.probe_self_test import SelfTest

STYLES = {"found": "green", "missed": "bold red", "not-checked": "cyan"}


def render_self_test(result: SelfTest, console: Console) -> None:
    """One line per check, then the count."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("", "check", "fault that was put in", "what it said"):
        table.add_column(column, overflow="fold")
    for trial in result.trials:
        said = trial.message or trial.sound
        table.add_row(Text(trial.outcome, style=STYLES[trial.outcome]), trial.id, trial.fault, said)
    console.print(table)
    counts = ", ".join(f"{result.count(outcome)} {outcome}" for outcome in ("found", "missed", "not-checked"))
    console.print(f"self-test of {result.checklist} on {result.model}: {counts}", soft_wrap=True)
