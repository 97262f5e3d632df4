"""The parts of an inspection's screen that are there on request: the upstream trace, what was scaffolded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

_SHOWN = 12


def trace_table(trace: Mapping[str, Any]) -> RenderableType:
    """Per kind of layer the primitive operators that compute something, the most frequent first."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for part in trace["parts"]:
        head = f"{part['layers']} x {part['kind']}" if part["layers"] else part["kind"]
        table.add_row(head, counts_text(part["operators"]))
    total = sum(operator["prefill"] for operator in trace["operators"])
    step = sum(operator["decode"] for operator in trace["operators"])
    table.add_row("whole model", f"{total:,} calls for {trace['prompt_tokens']} tokens, {step:,} for the next one")
    return table


def counts_text(operators: Sequence[Mapping[str, Any]], shown: int | None = _SHOWN) -> str:
    """ "mm 7, mul 9 (decode 8), ...": views are left out, they compute nothing."""
    computing = [operator for operator in operators if not operator["view"]]
    texts = []
    for operator in computing[:shown]:
        text = f"{operator['name'].removeprefix('aten.')} {operator['prefill']}"
        texts.append(text if operator["prefill"] == operator["decode"] else f"{text} (decode {operator['decode']})")
    rest = len(computing) - len(texts)
    return ", ".join([*texts, f"and {rest} more"] if rest > 0 else texts)


def scaffold_text(scaffold: Mapping[str, Any]) -> Text:
    """Where the packages lie, and which of them still want a definition."""
    if not scaffold["operators"]:
        return Text(f"nothing is missing, so nothing was written to {scaffold['folder']}")
    text = Text(f"{len(scaffold['operators'])} packages in {scaffold['folder']}: {', '.join(scaffold['operators'])}")
    if scaffold["without_reference"]:
        text.append(f"\nwithout a reference yet: {', '.join(scaffold['without_reference'])}", style="yellow")
    return text.append(f"\nDAY0_KERNEL=reference pytest {scaffold['folder']} plugs the references in", style="dim")
