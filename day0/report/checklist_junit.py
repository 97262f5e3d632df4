"""A checklist result as JUnit XML: one suite per phase, one case per check."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from day0.checklist.checklist import ChecklistResult, CheckResult, PhaseResult
from day0.report.checklist_text import limits_text, number_text, where_text

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_document(result: ChecklistResult) -> bytes:
    """XML that CI systems read. Only required failures are failures; a required check left undone is an error."""
    root = ElementTree.Element(
        "testsuites", name=_clean(f"day0 run-checklist {result.checklist}"), time=_time(result.seconds)
    )
    for phase in result.phases:
        root.append(_suite(phase, result))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def _suite(phase: PhaseResult, result: ChecklistResult) -> ElementTree.Element:
    cases = [_case(check, phase.name) for check in phase.checks]
    suite = ElementTree.Element(
        "testsuite",
        name=phase.name,
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        errors=str(sum(case.find("error") is not None for case in cases)),
        skipped=str(sum(case.find("skipped") is not None for case in cases)),
        time=_time(sum(check.seconds for check in phase.checks)),
        hostname=_clean(result.target),
    )
    suite.extend(cases)
    return suite


def _case(check: CheckResult, phase: str) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=phase, name=_clean(check.id), time=_time(check.seconds))
    kind = _kind(check)
    if kind:
        entry = ElementTree.SubElement(case, kind, message=_clean(check.message), type=check.status)
        entry.text = _clean(_details(check))
    else:
        ElementTree.SubElement(case, "system-out").text = _clean(_details(check))
    return case


def _kind(check: CheckResult) -> str | None:
    if check.status in ("pass", "warn"):
        return None
    if check.status == "na" or not check.required:
        return "skipped"
    return "failure" if check.status == "fail" else "error"


def _details(check: CheckResult) -> str:
    limits = limits_text(check)
    lines = [check.title, check.message, check.hint]
    lines += [where_text(check.where)] if check.where else []
    lines += [
        f"{name} = {number_text(value)}" + (f" ({limits[name]})" if name in limits else "")
        for name, value in check.measured.items()
    ]
    return "\n".join(line for line in lines if line)


def _clean(text: str) -> str:
    """Without the characters that XML 1.0 cannot hold: controls, lone surrogates and two non-characters."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _time(seconds: float) -> str:
    return f"{seconds:.3f}"
