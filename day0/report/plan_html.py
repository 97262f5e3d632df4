"""A plan as one HTML file that opens offline: no script, no network, everything escaped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from day0.engines.shell import shell_line
from day0.report.plan_bars import GIB, LINES, bound_text, free_text, fullest, headroom_text, ranks_text, whole_bytes
from day0.report.plan_document import PlanDocument
from day0.report.plan_text import SIDE_BY_SIDE, compared

COLOURS = {
    "weights": "#3b6fb6",
    "workspace": "#5fb3c4",
    "activations": "#a86bb8",
    "state_pool": "#d9a520",
    "kv_pool": "#5a9e4b",
    "comm": "#c4553f",
    "overhead": "#8a8a8a",
}
VERDICTS = {True: ("yes", "fits"), False: ("no", "does not fit"), None: ("unknown", "cannot say")}


def html_document(document: PlanDocument) -> str:
    """The page as text."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["round_gib"] = lambda nbytes: f"{nbytes / GIB:.1f}"
    environment.filters["gib"] = lambda nbytes: f"{nbytes / GIB:.2f}"
    environment.filters["count"] = lambda value: f"{value:,}"
    template = environment.get_template("plan.html.j2")
    return template.render(
        document=document,
        best=document.plans[:SIDE_BY_SIDE],
        rows=compared(document.plans[:SIDE_BY_SIDE]),
        colours=COLOURS,
        verdicts=VERDICTS,
        words={name: words for name, (_, _, words) in LINES.items()},
        segments=_segments,
        fullest=fullest,
        whole_bytes=whole_bytes,
        free_text=free_text,
        ranks_text=ranks_text,
        headroom_text=headroom_text,
        bound_text=bound_text,
        shell_line=shell_line,
        used=_used_lines(document),
    )


def _used_lines(document: PlanDocument) -> list[str]:
    """The lines of memory that some rank of some plan has."""
    return [name for name in LINES if any(rank[name] for plan in document.plans for rank in plan["ranks"])]


def _segments(rank: Mapping[str, Any], whole: int) -> list[tuple[str, float, float]]:
    """(line, start, width) of one rank's bar, in percent of `whole` bytes."""
    segments, start = [], 0.0
    for name in LINES:
        if rank[name]:
            width = 100 * rank[name] / whole
            segments.append((name, start, width))
            start += width
    return segments
