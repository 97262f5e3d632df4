from __future__ import annotations

import html
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from day0.engines.launch import Launch
from day0.plan.accounting import accounting_for
from day0.plan.cluster import parse_cluster
from day0.plan.layout import LayoutRequest
from day0.plan.plan import Planner
from day0.plan.search import Answer, search, validate
from day0.plan.workload import make_workload
from day0.profile.read import read_profile
from day0.report.plan_bars import LINES, bar, bound_text, cells, count_text, headroom_text, whole_bytes
from day0.report.plan_document import PlanDocument, plan_document
from day0.report.plan_html import html_document
from day0.report.plan_text import ROWS, compared, render
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
    assert lengths == [68, 68]


def test_a_rank_that_lacks_memory_shows_how_much() -> None:
    shown = document("h100:8", tp=8)
    lacking = -shown.plans[0]["ranks"][0]["free"] / 2**30
    text = text_of(shown)
    assert f"{lacking:.1f} GiB MISSING of 79.2" in text and "end of the GPU's memory" in text


def test_the_end_of_the_gpu_is_marked_where_it_is() -> None:
    rank = {**dict.fromkeys(LINES, 0), "weights": 150, "kv_pool": 50, "total": 100, "free": -100}
    drawn = bar(rank, 40, whole_bytes([rank])).plain
    assert drawn == "█" * 20 + "┃" + "█" * 9 + "▓" * 10


def test_a_page_and_a_screen_compare_the_three_best() -> None:
    shown = document("b200:8x2")
    text, page = text_of(shown), html_document(shown)
    for place, plan in enumerate(shown.plans, 1):
        assert f"{place}. {plan['label']}" in text and f"<h3>{place}. {plan['label']}</h3>" in page
        for read in ROWS.values():
            assert read(plan) in text and read(plan) in page


@pytest.mark.parametrize(
    ("room", "text"),
    [
        (
            {"requests": 0.84, "tokens": 110_337, "context": 3328},
            "room beyond 32 x 4,096 tokens for 0.84 requests, or 110,337 tokens, or 3,328 tokens in each request",
        ),
        ({"requests": -1.0, "tokens": -4096, "context": -1}, "short of 32 x 4,096 tokens by 1 request, 4,096 tokens"),
        ({"requests": None, "tokens": None, "context": None}, "the cache bounds neither requests nor their length"),
        ({"requests": 3.0, "tokens": None, "context": None}, "room beyond 32 x 4,096 tokens for 3 requests"),
    ],
)
def test_headroom_is_told_in_requests_and_tokens(room: dict[str, float | None], text: str) -> None:
    assert headroom_text({"headroom": room}, {"concurrency": 32, "context": 4096}) == text


def test_headroom_is_what_the_plan_holds_beyond_the_demand() -> None:
    shown = document("b200:8x2", tp=8, pp=2)
    plan = shown.plans[0]
    assert plan["headroom"]["tokens"] == plan["kv_tokens"] - 65536
    assert plan["headroom"]["requests"] == pytest.approx(plan["max_concurrency"] - 1)
    assert plan["headroom"]["context"] == plan["max_context"] - 65536


@given(st.lists(st.integers(0, 2**40), min_size=2, max_size=8), st.integers(16, 80))
def test_cells_add_up_and_nothing_is_too_small_to_be_seen(sizes: list[int], width: int) -> None:
    counts = cells(sizes, width)
    whole = sum(sizes)
    assert min(counts) >= 0 and (sum(counts) == width or whole == 0)
    assert all(count >= 1 for count, size in zip(counts[:-1], sizes[:-1], strict=True) if size)
    assert all(abs(count - size * width / (whole or 1)) < len(sizes) for count, size in zip(counts, sizes, strict=True))


def test_figures_of_a_rank_add_up_on_screen() -> None:
    shown = document("b300:8", tp=8, ep=8)
    row = next(line for line in text_of(shown, 160).splitlines() if "ranks 0-7" in line and "█" not in line)
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
    bars = [re.findall(r"left:([\d.]+)%;width:([\d.]+)%", part) for part in page.split('<div class="bar">')[1:]]
    assert bars
    for segments in bars:
        end = 0.0
        for start, width in segments:
            assert float(start) == pytest.approx(end, abs=0.01)
            end = float(start) + float(width)
        assert end == pytest.approx(100, abs=0.1), "a rank that lacks memory is drawn against its need"
    assert "GiB MISSING" in page and "end of the GPU" in page


def test_a_page_quotes_commands_for_a_shell() -> None:
    launch = Launch((("vllm", "serve", "a model", "--flag", "{}"),), {"SWITCH": "a b"}, checked="the record")
    page = html.unescape(html_document(document("b300:8", tp=8, launch=launch)))
    assert "vllm serve 'a model' \\\n  --flag '{}'" in page and "export 'SWITCH=a b'" in page


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.82, "0.82"), (4.0, "4"), (99.5, "99.50"), (1234.6, "1,235"), (0, "0")]
)
def test_counts_keep_what_matters(value: float | None, text: str) -> None:
    assert count_text(value) == text


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"ranks": [{}], "notes": []}, "of what is understood"),
        ({"ranks": [], "notes": ["the stored weights are 3 GiB"]}, "in the notes"),
        ({"ranks": [], "notes": []}, "without tensor headers"),
    ],
)
def test_what_is_not_sized_comes_with_its_bound(plan: dict[str, list[object]], words: str) -> None:
    assert words in bound_text(plan)


def test_rows_that_say_nothing_are_left_out() -> None:
    plan = document("b300:8", tp=8).plans[0]
    unknown = {**plan, "estimate": None, "max_context": None, "headroom": dict.fromkeys(plan["headroom"])}
    assert {"first token", "longest context", "tokens/s"} <= set(compared([plan])) - set(compared([unknown]))
    assert set(compared([plan, unknown])) == set(compared([plan]))
