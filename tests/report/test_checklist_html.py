"""The HTML page: one file, nothing fetched, nothing a stranger wrote becomes markup."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from day0.checklist.checklist import ChecklistResult, CheckResult, PhaseResult
from day0.report.checklist_html import html_document
from day0.report.checklist_plots import checklist_plots

_VOID = {"meta", "br", "link", "img", "hr", "input"}


class _Outline(HTMLParser):
    """Collects tags, attributes and text, and checks that tags close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture
def outline(result: ChecklistResult) -> _Outline:
    parser = _Outline()
    parser.feed(html_document(result))
    return parser


def test_no_script_and_no_network(outline: _Outline) -> None:
    assert not set(outline.tags) & {"script", "link", "iframe", "img", "object"}
    for name, value in outline.attributes:
        assert not name.startswith("on")
        if name in ("src", "href", "xlink:href", "data"):
            assert value.startswith("#"), f"{name}={value} leaves the page"


def test_tags_close_and_texts_stay_texts(outline: _Outline) -> None:
    assert outline.open == []
    assert any("<script>alert('x')</script>" in text for text in outline.texts)


def test_holds_verdict_checks_limits_and_environment(outline: _Outline) -> None:
    text = " ".join(" ".join(outline.texts).split())
    for words in ("not ready", "loading.headers", "≤ 0", "layer 3, operator mla", "torch 2.13", "8.0 GiB", "optional"):
        assert words in text, words


def test_every_link_has_its_target(result: ChecklistResult) -> None:
    page = html_document(result)
    for target in re.findall(r'<a href="#([^"]+)"', page):
        assert f'id="{target}"' in page


def test_plots_are_drawn_from_the_measurements(result: ChecklistResult) -> None:
    plots = checklist_plots(result)
    assert set(plots) == {"Error by tensor: numerics.reference", "Latency", "Memory: performance.memory"}
    drawn = [plot.svg() for plot in plots.values()]
    assert all(svg.startswith("<svg") and svg.rstrip().endswith("</svg>") for svg in drawn)
    assert html_document(result).count("<figure>") == 3


def test_the_page_is_the_same_twice(result: ChecklistResult) -> None:
    assert html_document(result) == html_document(result)


def test_a_plan_is_drawn_line_by_line(result: ChecklistResult) -> None:
    measured = {"plan_bytes": {"weights": 2**28, "kv_pool": 0}, "allocated_bytes": {"weights": 2**27, "kv_pool": 2**20}}
    check = CheckResult("startup.plan", "As planned", "pass", True, measured)
    phases = (PhaseResult("startup", "pass", (check,)),)
    (plot,) = checklist_plots(replace(result, phases=phases)).values()
    svg = plot.svg()
    for words in ("weights", "kv pool", "256.00 MiB", "128.00 MiB", "1.00 MiB", "planned", "held"):
        assert words in svg
