from __future__ import annotations

import io

import pytest
from rich.console import Console

from day0.engines.launch import Launch
from day0.plan.accounting import accounting_for
from day0.plan.cluster import parse_cluster
from day0.plan.layout import LayoutRequest
from day0.plan.plan import Planner
from day0.plan.search import Answer, search, validate
from day0.plan.workload import make_workload
from day0.profile.read import read_profile
from day0.report.plan_document import PlanDocument, plan_document
from day0.report.plan_html import html_document
from day0.report.plan_text import LINES, count_text, render
from day0.source.resolve import resolve

HOSTILE = "<b>[bold]it's</b>"


def document(spec: str, *, launch: Launch | None = None, **sizes: int) -> PlanDocument:
    files = resolve("recipe:kimi-k3")
    profile = read_profile(files)
    planner = Planner(profile, parse_cluster(spec), accounting_for("vllm"), make_workload(profile, context=65536))
    answer: Answer = validate(planner, LayoutRequest(**sizes)) if sizes else search(planner, 3)
    return plan_document(files, planner, answer, tuple(launch or Launch(()) for _ in answer.plans), 0.5)


def text_of(shown: PlanDocument, width: int = 120) -> str:
    stream = io.StringIO()
    render(shown, Console(file=stream, width=width, markup=False))
    return stream.getvalue()


def test_every_stage_has_a_bar_to_one_scale() -> None:
    text = text_of(document("b200:8x2", tp=8, pp=2))
    bars = [line for line in text.splitlines() if line.strip().startswith("ranks") and "█" in line]
    assert [bar.split()[1] for bar in bars] == ["0-7", "8-15"]
    lengths = [sum(bar.count(glyph) for glyph in (*(glyph for glyph, *_ in LINES.values()), "·")) for bar in bars]
    assert lengths == [60, 60]


def test_a_rank_that_lacks_memory_shows_how_much() -> None:
    shown = document("h100:8", tp=8)
    lacking = -shown.plans[0]["ranks"][0]["free"] / 2**30
    assert f"{lacking:.1f} MISSING" in text_of(shown)


def test_figures_of_a_rank_add_up_on_screen() -> None:
    shown = document("b300:8", tp=8, ep=8)
    row = next(line for line in text_of(shown).splitlines() if "ranks 0-7" in line and "█" not in line)
    layers, *figures = (float(word) for word in row.split()[2:])
    assert layers == 93
    assert sum(figures[:-1]) == pytest.approx(figures[-1], abs=0.05)


def test_many_stages_are_cut_short() -> None:
    text = text_of(document("b300:8x2", tp=1, pp=16))
    assert "8 more stages in --json" in text


@pytest.mark.parametrize("width", [80, 120, 200])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    assert max(map(len, text_of(document("b200:8x2"), width).splitlines())) <= width


def test_hostile_text_is_printed_as_it_is_and_escaped_on_a_page() -> None:
    shown = document("b300:8", tp=8, launch=Launch((), notes=(HOSTILE,)))
    assert HOSTILE in text_of(shown)
    page = html_document(shown)
    assert HOSTILE not in page and "&lt;b&gt;[bold]it" in page


def test_a_page_draws_every_line_of_memory_within_the_bar() -> None:
    page = html_document(document("h100:8", tp=8))
    widths = [float(part.split("%")[0]) for part in page.split('<i style="width:')[1:]]
    assert widths and sum(widths) == pytest.approx(100, abs=0.1), "a rank that lacks memory is drawn against its need"
    assert "GiB missing" in page


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.82, "0.82"), (4.0, "4"), (99.5, "99.50"), (1234.6, "1,235"), (0, "0")]
)
def test_counts_keep_what_matters(value: float | None, text: str) -> None:
    assert count_text(value) == text
