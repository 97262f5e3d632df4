"""A checklist result for the terminal: the verdict first and last, one screen between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from day0.checklist.checklist import ChecklistResult, CheckResult, PhaseResult, Status, Where

STATUS_STYLES: Mapping[Status, str] = {
    "pass": "green", "warn": "yellow", "fail": "bold red", "error": "bold magenta", "skip": "cyan", "na": "dim",
}  # fmt: skip
VERDICT_STYLES: Mapping[str, str] = {"ready": "bold green", "not-ready": "bold red", "incomplete": "bold yellow"}
_LOUD = ("fail", "error", "warn", "skip")


def render_checklist(result: ChecklistResult, console: Console) -> None:
    """Verdict, environment, one line per check, details of what did not pass, verdict."""
    console.print(verdict_line(result), soft_wrap=True)  # one line, for whoever reads it by script
    console.print(Text(environment_line(result), style="dim"))
    for limit in result.limits:
        console.print(Text(f"weaker: {limit}", style="yellow"))
    for phase in result.phases:
        console.print(_phase(phase))
    console.print(verdict_line(result), soft_wrap=True)  # one line, for whoever reads it by script


def verdict_line(result: ChecklistResult) -> Text:
    """READY / NOT READY / INCOMPLETE, the model, and the count of each status."""
    text = Text(result.verdict.replace("-", " ").upper(), style=VERDICT_STYLES[result.verdict])
    text.append(f"  {result.model.get('id', '')}", style="bold")
    text.append(f"  {counts_text(result)} in {result.seconds:.1f} s", style="default")
    if result.interrupted:
        text.append("  interrupted", style="bold red")
    return text


def counts_text(result: ChecklistResult) -> str:
    """How many checks ended how: `28 pass, 6 na`."""
    counts = Counter(check.status for check in result.checks())
    return ", ".join(f"{counts[status]} {status}" for status in STATUS_STYLES if counts[status])


def environment_line(result: ChecklistResult) -> str:
    """Target, reference and device in one line."""
    facts = result.environment
    versions = facts.get("versions", {})
    parts = [
        f"checklist {result.checklist}",
        f"target {result.target}",
        f"reference {result.reference}",
        f"device {facts.get('device', '?')} {facts.get('dtype', '')}".rstrip(),
        f"torch {versions.get('torch', '?')}",
        f"seed {result.seed}",
    ]
    return " · ".join(parts)


def _phase(phase: PhaseResult) -> RenderableType:
    header = Text(f"{phase.name:<12}", style="bold")
    header.append(phase.status, style=STATUS_STYLES[phase.status])
    reasons = {check.message for check in phase.checks}
    if phase.status == "na" and len(reasons) == 1:
        header.append(f"  {reasons.pop()}", style="dim")
        return header
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(width=5)
    table.add_column(width=20)
    table.add_column(ratio=1, overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    for check in phase.checks:
        name = Text(check.id.removeprefix(f"{phase.name}."))
        if not check.required:
            name.append(" (optional)", style="dim")
        status = Text(check.status, style=STATUS_STYLES[check.status])
        table.add_row(status, name, _detail(check), Text(f"{check.seconds:.1f} s", style="dim"))
    return Group(header, Padding(table, (0, 0, 0, 2)))


def _detail(check: CheckResult) -> Text:
    """The title, and figures beside it, where a check passed; else why not, where, and what to do."""
    if check.status == "pass":
        text = Text(check.title)
        if check.message:
            text.append(f": {check.message}", style="dim")
        return text
    text = Text(check.message or check.title)
    if check.where is not None and check.status in _LOUD:
        text.append(f" [{where_text(check.where)}]", style="bold")
    if check.hint and check.status in _LOUD:
        text.append(f"\n{check.hint}", style="italic dim")
    return text


def where_text(where: Where) -> str:
    """`layer 3, operator mla, tensor layers.3.mixer_out` with what is known."""
    parts = {
        "layer": where.layer, "operator": where.operator, "tensor": where.tensor, "length": where.length,
    }  # fmt: skip
    return ", ".join(f"{name} {value}" for name, value in parts.items() if value is not None)


def limits_text(check: CheckResult) -> dict[str, str]:
    """Limits in words, by measured name: `at most 0`."""
    words = {
        "max": "≤ {}", "min": "≥ {}", "equals": "= {}", "warn_max": "warn above {}", "warn_min": "warn below {}",
        "max_of_baseline": "≤ {} × baseline", "baseline": "baseline {}",
        "slowdown_of_baseline": "a slowdown of {} must show",
    }  # fmt: skip
    return {
        name: ", ".join(words[bound].format(number_text(value)) for bound, value in bounds.items())
        for name, bounds in check.limit.items()
    }


def number_text(value: Any) -> str:
    """A measured value for people: floats to four digits, long lists by their length."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)) and len(value) > 4:
        return f"{len(value)} values"
    if isinstance(value, (list, tuple)):
        return ", ".join(number_text(item) for item in value)
    if isinstance(value, Mapping):
        return (
            f"{len(value)} entries" if len(value) > 4 else ", ".join(f"{k} {number_text(v)}" for k, v in value.items())
        )
    return "–" if value is None else str(value)
