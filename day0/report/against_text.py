"""Two targets held against each other, for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from day0.checklist.against import Against

STYLES = {"holds": "bold green", "worse": "bold red", "not-enough-data": "cyan"}
SHOWN = 5
"""Partings that are shown, those that are no near ties first."""


def render_against(result: Against, console: Console) -> None:
    """What was compared, line by line, then both rulings and the verdict."""
    table = Table(box=None, pad_edge=False, show_header=False)
    low, high = result.agreement
    pairs = result.acceptance.pairs
    ties = sum(parting.is_near_tie for parting in result.partings)
    rows = (
        ("same text", f"{result.same_text} of {result.asked - result.unanswered} (95%: {low:.1%} to {high:.1%})"),
        ("unanswered", f"{result.unanswered} of {result.asked}"),
        ("first tokens that differ", f"{len(result.partings)}, {ties} of them near ties"),
        ("places compared", str(result.places)),
        (
            "log probabilities",
            f"{_nats(result.worst_difference)} at most, relative error {_plain(result.relative_error)}",
        ),
        ("divergence", f"at least {_nats(result.divergence)} in the mean, {_nats(result.worst_divergence)} at most"),
        ("right answers", f"{pairs.candidate_solved} and {pairs.base_solved} of {pairs.num_prompts}"),
        ("numbers", f"{result.numerics}: {result.numerics_reason}"),
        ("answers", f"{result.acceptance.ruling}: {result.acceptance.reason}"),
    )
    for name, value in rows:
        table.add_row(Text(name, style="dim"), value)
    console.print(table)
    for parting in sorted(result.partings, key=lambda one: one.is_near_tie)[:SHOWN]:
        margin = "unknown" if parting.margin is None else f"{parting.margin:.3f} nats"
        words = f"{parting.candidate!r} for {parting.base!r}"
        console.print(f"  question {parting.question}, token {parting.place}: {words}, margin {margin}", soft_wrap=True)
    console.print(
        Text(str(result.verdict), style=STYLES[result.verdict]),
        f"{result.candidate} against {result.base}",
        soft_wrap=True,
    )


def _nats(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2g} nats"


def _plain(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2g}"
