"""What became of a bundle judged again, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from day0.report.bundle_check import BundleCheck

if TYPE_CHECKING:
    from rich.console import Console

WORDS = {
    "holds": ("HOLDS", "bold green"),
    "altered": ("ALTERED", "bold red"),
    "incomplete": ("INCOMPLETE", "bold yellow"),
}
MOST_SHOWN = 20


def render_bundle_check(found: BundleCheck, console: Console) -> None:
    """The verdict, what was altered (the first of it, where it is much), what is missing, and the digest."""
    word, style = WORDS[found.verdict]
    line = Text(word, style=style)
    line.append(f" {found.checks} checks judged again; the run said {found.run or 'nothing'}", style="default")
    console.print(line)
    if found.altered:
        table = Table("file", "place", "what is wrong", box=None, padding=(0, 2, 0, 0))
        for entry in found.altered[:MOST_SHOWN]:
            table.add_row(Text(entry.file), Text(entry.place or "–"), Text(entry.message))
        console.print(table)
    if len(found.altered) > MOST_SHOWN:
        console.print(f"and {len(found.altered) - MOST_SHOWN} more: --json lists them")
    for name in found.missing:
        console.print(f"missing: {name}")
    if found.digest is not None:
        console.print(f"digest: sha256:{found.digest}", style="dim")
