"""JUnit: counts that CI can trust, and XML that parses whatever the texts."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from day0.checklist.checklist import ChecklistResult
from day0.report.checklist_junit import junit_document


def test_counts_per_phase(result: ChecklistResult) -> None:
    root = ElementTree.fromstring(junit_document(result))
    counts = {
        suite.get("name"): [suite.get(key) for key in ("tests", "failures", "errors", "skipped")] for suite in root
    }
    assert counts == {
        "loading": ["2", "1", "0", "0"],
        "multimodal": ["1", "0", "0", "1"],
        "numerics": ["3", "0", "1", "1"],
        "performance": ["2", "0", "1", "0"],
    }


def test_a_required_skip_is_an_error_because_nothing_was_checked(result: ChecklistResult) -> None:
    root = ElementTree.fromstring(junit_document(result))
    case = root.find(".//testcase[@name='performance.memory']")
    assert case is not None and case.find("error") is not None


def test_details_hold_measured_and_limit(result: ChecklistResult) -> None:
    root = ElementTree.fromstring(junit_document(result))
    failure = root.find(".//testcase[@name='loading.values']/failure")
    assert failure is not None and failure.text is not None
    assert "wrong = 1 (≤ 0)" in failure.text
    assert "<script>" in failure.text


def test_control_characters_leave_xml_that_parses(result: ChecklistResult) -> None:
    odd = "\x00 \x1b[31m \ud800 \ufffe red"
    check = replace(result.phases[0].checks[1], id=odd, title=odd, message=odd)
    phase = replace(result.phases[0], checks=(check,))
    root = ElementTree.fromstring(junit_document(replace(result, phases=(phase,), checklist=odd, target=odd)))
    failure = root.find(".//failure")
    assert failure is not None and failure.get("message", "").endswith("red")
