"""A comparison of two traces as one HTML file that opens offline: no script, no network, everything escaped."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from day0.numerics.walk import Report, WalkNode

WIDTH, HEIGHT, LEFT, BOTTOM = 920, 260, 56, 24
"""Of the plot in user units; LEFT and BOTTOM are room for its scales."""
FLOOR = 1e-9
"""Errors below this are drawn at the foot of the plot."""


@dataclass(frozen=True, slots=True)
class Dot:
    """A node in the plot: where it stands, its error, what its step added, and its tolerance, as heights."""

    node: WalkNode
    x: float
    error: float
    added: float | None
    tolerance: float


def comparison_page(report: Report, reference: str, candidate: str) -> str:
    """The page as text: first deviation, error of every node by layer, decisions, and all nodes."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = lambda value: "–" if value is None else f"{value:.2e}"
    top = _top(report)
    return environment.get_template("compare.html.j2").render(
        report=report,
        reference=reference,
        candidate=candidate,
        counts=Counter(node.verdict for node in report.nodes),
        dots=_dots(report, top),
        powers=[(power, _height(10.0**power, top)) for power in range(round(math.log10(FLOOR)), top + 1, 2)],
        borders=_borders(report),
        size=(WIDTH, HEIGHT, LEFT, BOTTOM),
    )


def _top(report: Report) -> int:
    """The power of ten at the head of the plot."""
    largest = max((node.error for node in report.nodes if node.error is not None), default=1.0)
    return max(0, math.ceil(math.log10(max(largest, FLOOR))))


def _height(value: float, top: int) -> float:
    """Where a number lies on the logarithmic scale, from the top of the plot."""
    low = math.log10(FLOOR)
    share = (math.log10(max(value, FLOOR)) - low) / (top - low)
    return (HEIGHT - BOTTOM) * (1 - share)


def _place(index: int, count: int) -> float:
    return LEFT + (WIDTH - LEFT) * (index + 0.5) / max(count, 1)


def _dots(report: Report, top: int) -> list[Dot]:
    """Nodes that have an error; the place of those that were not checked stays empty."""
    count = len(report.nodes)
    return [
        Dot(
            node,
            _place(index, count),
            _height(node.error, top),
            None if node.added_error is None else _height(node.added_error, top),
            _height(node.tolerance, top),
        )
        for index, node in enumerate(report.nodes)
        if node.error is not None
    ]


def _borders(report: Report) -> list[tuple[float, str]]:
    """Where a layer begins, and what stands there."""
    borders: list[tuple[float, str]] = []
    before: tuple[int, int | None] | None = None
    for index, node in enumerate(report.nodes):
        place = (node.step, node.layer)
        if place != before and node.layer is not None:
            borders.append((_place(index, len(report.nodes)), str(node.layer)))
        before = place
    return borders
