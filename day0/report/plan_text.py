"""Plans on one screen: the three best side by side, a bar of memory for each rank of the best, rules broken, notes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from day0.report.plan_bars import (
    GIB,
    LINES,
    UNKNOWN,
    bar,
    bound_text,
    count_text,
    free_text,
    fullest,
    headroom_text,
    legend,
    milliseconds_text,
    ranks_text,
    signed_text,
    size_text,
    whole_bytes,
)
from day0.report.plan_document import PlanDocument

SIDE_BY_SIDE = 3
_STAGES_SHOWN = 8
_NARROW, _WIDE = 16, 44
_VERDICTS = {True: ("fits", "bold green"), False: ("does not fit", "bold red"), None: ("cannot say", "bold yellow")}

Row = Callable[[Mapping[str, Any]], str]


def _estimated(name: str, text: Callable[[float | None], str]) -> Row:
    return lambda plan: text((plan["estimate"] or {}).get(name))


ROWS: Mapping[str, Row] = {
    "weights per GPU": lambda plan: size_text(plan["weights_gib_per_gpu"]),
    "cache per GPU": lambda plan: size_text(plan["kv_gib_per_gpu"]),
    "tokens cached": lambda plan: count_text(plan["kv_tokens"]),
    "  beyond the ask": lambda plan: signed_text(plan["headroom"]["tokens"]),
    "requests at once": lambda plan: count_text(plan["max_concurrency"]),
    "  beyond the ask ": lambda plan: signed_text(plan["headroom"]["requests"]),
    "longest context": lambda plan: count_text(plan["max_context"]),
    "first token": _estimated("ttft_ms", milliseconds_text),
    "each token": _estimated("tpot_ms", milliseconds_text),
    "tokens/s": _estimated("tokens_per_s", count_text),
    "bound by": lambda plan: (plan["estimate"] or {}).get("bound", UNKNOWN),
}
"""What is compared of plans, in order; times are estimates."""


def render(document: PlanDocument, console: Console) -> None:
    """Print the answer; the first plan is shown in full."""
    console.print(_headline(document))
    if not document.plans:
        return
    console.print(Padding(_side_by_side(document.plans[:SIDE_BY_SIDE], console.width), (0, 0, 1, 2)))
    if len(document.plans) > SIDE_BY_SIDE:
        console.print(Padding(_others(document.plans[SIDE_BY_SIDE:]), (0, 0, 1, 2)))
    best = document.plans[0]
    if best["ranks"]:
        _print_ranks(best, console)
    for title, lines, style in _remarks(best, document):
        if lines:
            console.print(Text(title, style=style))
            for line in lines:
                console.print(Padding(Text(line), (0, 0, 0, 2)))


def _headline(document: PlanDocument) -> Text:
    cluster, workload = document.cluster, document.workload
    nodes = f" on {cluster['nodes']} nodes" if cluster["nodes"] > 1 else ""
    looked = f"{document.searched} layouts searched" if document.searched > 1 else "the layout that was asked for"
    refused = f", {document.refused} against the rules" if document.refused and document.searched > 1 else ""
    version = f" {document.engine_version}" if document.engine_version else ""
    word, style = _VERDICTS[document.plans[0]["fits"] if document.plans else None]
    text = Text.assemble(
        (document.model.id, "bold"),
        f" on {cluster['gpus']} x {cluster['title']}{nodes}, engine {document.engine}{version}: "
        f"{workload.concurrency:,} request(s) of {workload.context:,} tokens, KV {workload.kv_dtype}\n",
        (word, style),
    )
    best = document.plans[0] if document.plans else None
    if best and best["ranks"] and best["fits"] is not None and best["fits"] is not _is_short(best):
        text.append(f"; {headroom_text(best, document.demand)}")
    return text.append(f"\n{looked}{refused}, {document.seconds:.2f} s\n", "dim")


def _is_short(plan: Mapping[str, Any]) -> bool:
    return (plan["headroom"]["requests"] or 0) < 0


def _side_by_side(plans: Sequence[Mapping[str, Any]], width: int) -> Table:
    """The best plans as columns, each with the bar of its fullest rank."""
    labels = max(map(len, ROWS)) + 1
    cell = min(_WIDE, max(_NARROW, (width - labels - 2) // len(plans) - 2))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True, style="dim")
    for place, plan in enumerate(plans, 1):
        table.add_column(f"{place}. {plan['label']}", max_width=cell, no_wrap=len(plan["label"]) + 3 <= cell)
    table.add_row("", *(Text(*_VERDICTS[plan["fits"]]) for plan in plans))
    bars = [_bar_of_fullest(plan, cell) for plan in plans]
    table.add_row("fullest rank", *(drawn for drawn, _ in bars))
    table.add_row("", *(Text(words, "dim") for _, words in bars))
    for name, texts in compared(plans).items():
        table.add_row(name, *texts)
    return table


def compared(plans: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The rows of the comparison, a text for each plan; rows that say nothing of any are left out."""
    rows = {name: tuple(text(plan) for plan in plans) for name, text in ROWS.items()}
    return {name: texts for name, texts in rows.items() if set(texts) != {UNKNOWN}}


def _bar_of_fullest(plan: Mapping[str, Any], width: int) -> tuple[RenderableType, str]:
    rank = fullest(plan)
    if rank is None:
        return UNKNOWN, ""
    return bar(rank, width, whole_bytes([rank])), free_text(rank)


def _others(plans: Sequence[Mapping[str, Any]]) -> Table:
    """Plans after the best, a line each."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("further layouts", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for name in ("weights/GPU", "requests", "context", "tokens/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for plan in plans:
        table.add_row(
            plan["label"],
            Text(*_VERDICTS[plan["fits"]]),
            ROWS["weights per GPU"](plan),
            ROWS["requests at once"](plan),
            ROWS["longest context"](plan),
            ROWS["tokens/s"](plan),
        )
    return table


def _print_ranks(plan: Mapping[str, Any], console: Console) -> None:
    """A bar and a line of figures for each stage, whose ranks are alike; all bars are drawn to one scale."""
    shown = plan["ranks"][:_STAGES_SHOWN]
    whole = whole_bytes(plan["ranks"])
    width = max(_NARROW, min(72, console.width - 52))
    console.print(Text.assemble("Memory of each rank, GiB: ", (plan["label"], "bold")))
    for rank in shown:
        line = Text.assemble(f"{ranks_text(rank):<14}", bar(rank, width, whole))
        line.append(f"  {free_text(rank)} of {rank['total'] / GIB:.1f}", "" if rank["free"] >= 0 else "bold red")
        console.print(Padding(line, (0, 0, 0, 2)))
    names = [name for name in LINES if any(rank[name] for rank in shown)]
    console.print(Padding(legend(names, overfull=any(rank["free"] < 0 for rank in shown)), (0, 0, 1, 2)))
    console.print(Padding(_figures(shown, names), (0, 0, 1, 2)))
    if len(plan["ranks"]) > len(shown):
        console.print(Padding(Text(f"{len(plan['ranks']) - len(shown)} more stages in --json"), (0, 0, 1, 2)))


def _figures(ranks: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Table:
    """Every line of every stage; they add up to the total."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    for heading in ("layers", *(LINES[name][2] for name in names), "free", "total"):
        table.add_column(heading, justify="right")
    for rank in ranks:
        figures = (f"{rank[name] / GIB:.2f}" for name in (*names, "free", "total"))
        table.add_row(ranks_text(rank), str(rank["layers"]), *figures)
    return table


def _remarks(plan: Mapping[str, Any], document: PlanDocument) -> Iterator[tuple[str, Sequence[str], str]]:
    broken = [f"{each['rule']}: {each['message']}\n    -> {each['fix']}" for each in plan["violations"]]
    yield "Does not hold", broken, "bold red"
    unsized = [*plan["unsized"], f"-> {bound_text(plan)}"] if plan["unsized"] else []
    yield "Not sized", unsized, "bold yellow"
    yield "Otherwise than the plan file says", document.changes, "bold yellow"
    yield "Notes", [*plan["notes"], *plan["launch"]["notes"]], "bold"
