"""The terminal report: verdict first and last, everything that did not pass in words."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console

from day0.checklist.checklist import ChecklistResult, CheckResult, Where
from day0.report.checklist_text import limits_text, number_text, render_checklist, where_text


def rendered(result: ChecklistResult, width: int = 120) -> list[str]:
    console = Console(width=width, record=True, file=StringIO())
    render_checklist(result, console)
    return console.export_text().rstrip().split("\n")


def test_verdict_is_first_and_last(result: ChecklistResult) -> None:
    lines = rendered(result, 400)
    assert lines[0].startswith("NOT READY") and lines[0] == lines[-1]
    assert "2 pass, 1 warn, 2 fail, 1 error, 1 skip, 1 na in 12.3 s" in lines[0]


def test_one_screen(result: ChecklistResult) -> None:
    assert len(rendered(result)) < 40


def test_what_did_not_pass_says_why_and_where(result: ChecklistResult) -> None:
    text = "\n".join(rendered(result))
    assert "layer 3, operator mla" in text
    assert "the check broke" in text
    assert "(optional)" in text


def test_square_brackets_of_strangers_are_text(result: ChecklistResult) -> None:
    assert "[bold]" in "\n".join(rendered(result))


def test_an_interrupted_run_says_so(result: ChecklistResult) -> None:
    assert "interrupted" in rendered(replace(result, interrupted=True), 400)[0]


def test_where_lists_what_is_known() -> None:
    assert where_text(Where(layer=0, length=17)) == "layer 0, length 17"


def test_limits_in_words() -> None:
    check = CheckResult("a", "a", "pass", True, limit={"x": {"max": 2, "warn_max": 1.5}, "y": {"equals": True}})
    assert limits_text(check) == {"x": "≤ 2, warn above 1.5", "y": "= True"}


def test_values_for_people() -> None:
    assert number_text(1.23456789e-7) == "1.235e-07"
    assert number_text([1, 2, 3, 4, 5]) == "5 values"
    assert number_text([0.5, 2]) == "0.5, 2"
    assert number_text(None) == "–"
    assert number_text({"a": 1}) == "a 1"
