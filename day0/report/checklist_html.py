"""A checklist result as one HTML file that opens offline and prints: no script, no network, everything escaped."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from day0.checklist.checklist import ChecklistResult, CheckResult
from day0.report.checklist_plots import checklist_plots
from day0.report.checklist_text import counts_text, limits_text, number_text, where_text

BY_BADNESS = ("gap", "constraint", "unverified", "verified")


def html_document(result: ChecklistResult, *, drawn: bool = True) -> str:
    """The page as text. Only the plots, drawn here, go in unescaped; with `drawn` false their places stay empty."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["where"] = where_text
    template = environment.get_template("checklist.html.j2")
    plots = {title: Markup(plot.svg() if drawn else "") for title, plot in checklist_plots(result).items()}
    return template.render(
        result=result,
        plots=plots,
        rows=_rows,
        facts=_facts(result),
        open_checks=[check for check in result.checks() if check.status not in ("pass", "na")],
        counts=counts_text(result),
        command=shlex.join(result.command),
        coverage=_coverage(result),
    )


def _coverage(result: ChecklistResult) -> list[tuple[str, list[str]]]:
    """(status, operators) of the whitelist's judgement, the worst first."""
    operators: dict[str, set[str]] = {}
    for one in result.coverage.get("operators", ()):
        operators.setdefault(one["status"], set()).add(f"{one['name']} ({one['provider'] or 'nobody'})")
    return [(status, sorted(operators[status])) for status in sorted(operators, key=_badness)]


def _badness(status: str) -> int:
    return BY_BADNESS.index(status) if status in BY_BADNESS else 0


def _rows(check: CheckResult) -> list[tuple[str, str, str]]:
    """(name, measured, limit) of a check; what has a limit comes first."""
    limits = limits_text(check)
    names = sorted(check.measured, key=lambda name: name not in limits)
    rows = [(name, number_text(check.measured[name]), limits.get(name, "")) for name in names]
    return rows + [(name, "–", text) for name, text in limits.items() if name not in check.measured]


def _facts(result: ChecklistResult) -> dict[str, str]:
    """Model, target and environment as flat name and text."""
    facts: dict[str, Any] = {
        "Model": result.model.get("id"),
        "Revision": result.model.get("revision") or "local files",
        "Architecture": ", ".join(result.model.get("architectures", ())),
        "Checklist": result.checklist,
        "Target": result.target,
        "Reference": result.reference,
        "Seed": result.seed,
    }
    for name, value in result.environment.items():
        label = name.removesuffix("_bytes").replace("_", " ").capitalize()
        if isinstance(value, dict):
            facts[label] = ", ".join(f"{key} {entry}" for key, entry in value.items())
        else:
            facts[label] = f"{value / 2**30:.1f} GiB" if name.endswith("_bytes") else value
    return {name: value if isinstance(value, str) else json.dumps(value, default=str) for name, value in facts.items()}
