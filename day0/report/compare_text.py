"""A comparison of two traces for people: the first deviation, the choices, the tokens, and the nodes around it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from day0.numerics.walk import Report, WalkNode, errors_at_the_end

if TYPE_CHECKING:
    from rich.console import Console

AROUND = 4
"""Nodes shown before and after the first deviation."""
COLOURS = {"same": "green", "within tolerance": "green", "deviates": "red", "not checked": "yellow"}


def render_comparison(report: Report, console: Console) -> None:
    """Draw the report."""
    counts = Counter(node.verdict for node in report.nodes)
    console.print(Text(report.verdict, "bold"), ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    if report.floor == "assumed":
        console.print("the tolerance is assumed from types and depth: --floor or --model measures it")
    for remark in report.remarks:
        console.print(remark)
    if report.first is not None:
        _render_first(report.first, console)
    if shown := _shown(report):
        console.print(_table(shown))
    _render_choices(report, console)
    _render_end(report, console)
    _render_missing(report, console)


def _render_first(node: WalkNode, console: Console) -> None:
    layer = "" if node.layer is None else f"layer {node.layer}, "
    place = f"{layer}{node.operator}, tensor {node.tensor}"
    token = "" if node.position is None else f", token {node.position}"
    rank = "" if node.rank is None else f", rank {node.rank}"
    console.print(f"first deviation: {place}{token}{rank}")
    console.print(f"looks like: {node.kind}. {node.message}".rstrip())
    if node.added_error is not None and node.inherited_error is not None:
        console.print(
            f"error {_number(node.error)}: added here {_number(node.added_error)} ({node.added_how}),"
            f" inherited {_number(node.inherited_error)}; tolerance {_number(node.tolerance)}"
        )


def _shown(report: Report) -> list[WalkNode]:
    """Nodes around the first deviation, or those that were not checked, or the ends of the layers."""
    nodes = list(report.nodes)
    if report.first is not None:
        at = next(i for i, node in enumerate(nodes) if node.tensor == report.first.tensor)
        return nodes[max(0, at - AROUND) : at + AROUND + 1]
    unchecked = [node for node in nodes if node.verdict == "not checked"]
    return unchecked[: 2 * AROUND] or [node for node in nodes if node.operator in ("output", "logits")][-2 * AROUND :]


def _table(nodes: list[WalkNode]) -> Table:
    table = Table("tensor", "verdict", "error", "added", "tolerance", "what", box=None)
    for node in nodes:
        what = " ".join(part for part in (node.kind, node.message) if part)
        numbers = (_number(node.error), _number(node.added_error), _number(node.tolerance))
        table.add_row(node.tensor, Text(node.verdict, COLOURS[node.verdict]), *numbers, Text(what))
    return table


def _render_choices(report: Report, console: Console) -> None:
    for choice in report.decisions:
        gap = "" if choice.gap is None else f"; largest gap {_number(choice.gap)}, noise {_number(choice.noise)}"
        console.print(
            f"{choice.tensor}: {choice.flips} of {choice.tokens} tokens choose others"
            f" ({choice.exact_ties} exact ties, {choice.near_ties} near ties, {choice.faults} faults,"
            f" {choice.unknown} unknown), {choice.order} another order{gap}"
        )


def _render_end(report: Report, console: Console) -> None:
    logits = report.logits
    if logits is not None:
        console.print(
            f"logits: error {_number(logits.error)}, worst KL {_number(logits.worst_kl)} nats,"
            f" top-{logits.top_k} agreement {logits.top_k_agreement:.4f}, {logits.differing} of {logits.rows}"
            " rows have another likeliest token"
        )
        if (first := logits.first) is not None:
            tie = "a near tie" if first.near_tie else "no tie"
            console.print(
                f"first token that differs: after position {first.position}, {first.reference} and {first.candidate};"
                f" margin {_number(first.margin)}, noise {_number(first.noise)}: {tie}"
            )
    if report.replayed_logits is not None:
        errors = errors_at_the_end(report)
        console.print(
            "errors of the logits: " + ", ".join(f"{name} {_number(value)}" for name, value in errors.items())
        )


def _render_missing(report: Report, console: Console) -> None:
    for side, names in (("reference", report.missing_reference), ("candidate", report.missing_candidate)):
        if names:
            more = f" and {len(names) - 6} more" if len(names) > 6 else ""
            console.print(f"only missing in the {side}: {', '.join(names[:6])}{more}")
    if any(node.kind == "tie before" for node in report.nodes) and report.verdict != "deviates":
        console.print("next: day0 trace MODEL OUT --replay REFERENCE, then compare with --replayed OUT")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2e}"
