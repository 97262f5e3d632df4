"""A plan as one HTML file that opens offline: no script, no network, everything escaped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from day0.report.plan_document import PlanDocument
from day0.report.plan_text import LINES, count_text, milliseconds_text, size_text

COLOURS = {
    "weights": "#3b6fb6",
    "workspace": "#5fb3c4",
    "activations": "#a86bb8",
    "state_pool": "#d9a520",
    "kv_pool": "#5a9e4b",
    "comm": "#c4553f",
    "overhead": "#8a8a8a",
}
_GIB = 2**30


def html_document(document: PlanDocument) -> str:
    """The page as text."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["gib"] = lambda nbytes: f"{nbytes / _GIB:.2f}"
    environment.filters["size"] = size_text
    environment.filters["count"] = count_text
    environment.filters["time"] = milliseconds_text
    template = environment.get_template("plan.html.j2")
    words = {name: words for name, (_, _, words) in LINES.items()}
    return template.render(document=document, colours=COLOURS, words=words, segments=_segments)


def _segments(rank: dict[str, Any]) -> list[tuple[str, float]]:
    """(line, width in percent) of one rank's bar; a rank that lacks memory is drawn against what it needs."""
    whole = rank["total"] - min(0, rank["free"])
    return [(name, 100 * rank[name] / whole) for name in LINES if rank[name]]
