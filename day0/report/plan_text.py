"""Plans on one screen: the layouts side by side, a bar of memory for each rank of the best, rules broken, notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from day0.report.plan_document import PlanDocument

LINES: Mapping[str, tuple[str, str, str]] = {
    "weights": ("█", "blue", "weights"),
    "workspace": ("◧", "cyan", "workspace"),
    "activations": ("▒", "magenta", "activations"),
    "state_pool": ("◆", "yellow", "state pool"),
    "kv_pool": ("▓", "green", "KV pool"),
    "comm": ("≈", "red", "comm"),
    "overhead": ("▪", "white", "overhead"),
}
"""The lines of a rank in the order they are drawn: glyph, colour, words. Glyphs tell them apart without colour."""

_BAR_WIDTH = 60
_STAGES_SHOWN = 8
_GIB = 2**30
_VERDICTS = {True: ("fits", "green"), False: ("no", "bold red"), None: ("cannot say", "yellow")}


def render(document: PlanDocument, console: Console) -> None:
    """Print the answer; the first plan is shown in full."""
    console.print(_headline(document))
    console.print(Padding(_table(document), (0, 0, 1, 2)))
    if not document.plans:
        return
    best = document.plans[0]
    if best["ranks"]:
        shown = best["ranks"][:_STAGES_SHOWN]
        console.print(Text.assemble("Memory per rank in GiB, ", (best["label"], "bold")))
        for bar in _bars(shown):
            console.print(Padding(bar, (0, 0, 0, 2)))
        console.print(Padding(_legend(), (0, 0, 1, 2)))
        console.print(Padding(_figures(shown), (0, 0, 1, 2)))
        if len(best["ranks"]) > len(shown):
            console.print(Padding(Text(f"{len(best['ranks']) - len(shown)} more stages in --json"), (0, 0, 1, 2)))
    for title, lines, style in _remarks(best):
        if lines:
            console.print(Text(title, style=style))
            for line in lines:
                console.print(Padding(Text(line), (0, 0, 0, 2)))


def _headline(document: PlanDocument) -> Text:
    cluster, workload = document.cluster, document.workload
    nodes = f" on {cluster['nodes']} nodes" if cluster["nodes"] > 1 else ""
    looked = f"{document.searched} layouts searched" if document.searched > 1 else "the layout that was asked for"
    refused = f", {document.refused} against the rules" if document.refused and document.searched > 1 else ""
    return Text.assemble(
        (document.model.id, "bold"),
        f" on {cluster['gpus']} x {cluster['title']}{nodes}, engine {document.engine}: "
        f"{workload.concurrency} request(s) of {workload.context:,} tokens, KV {workload.kv_dtype}\n",
        (f"{looked}{refused}, {document.seconds:.2f} s", "dim"),
    )


def _table(document: PlanDocument) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("layout", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for name in ("weights/GPU", "cache/GPU", "tokens", "requests", "context", "TTFT", "TPOT", "tokens/s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("bound")
    for plan in document.plans:
        word, style = _VERDICTS[plan["fits"]]
        estimate = plan["estimate"] or {}
        table.add_row(
            plan["label"],
            Text(word, style=style),
            size_text(plan["weights_gib_per_gpu"]),
            size_text(plan["kv_gib_per_gpu"]),
            count_text(plan["kv_tokens"]),
            count_text(plan["max_concurrency"]),
            count_text(plan["max_context"]),
            milliseconds_text(estimate.get("ttft_ms")),
            milliseconds_text(estimate.get("tpot_ms")),
            count_text(estimate.get("tokens_per_s")),
            estimate.get("bound", "–"),
        )
    return table


def _bars(ranks: Sequence[dict[str, Any]]) -> Iterator[Text]:
    """One bar per stage, whose ranks are alike; all are drawn to one scale."""
    largest = max(rank["total"] - min(0, rank["free"]) for rank in ranks)
    for rank in ranks:
        bar = Text()
        for name, (glyph, style, _) in LINES.items():
            bar.append(glyph * round(rank[name] / largest * _BAR_WIDTH), style)
        room = round(rank["total"] / largest * _BAR_WIDTH) - len(bar)
        bar.append("·" * max(0, room), "dim")
        state = f"{rank['free'] / _GIB:.1f} free" if rank["free"] >= 0 else f"{-rank['free'] / _GIB:.1f} MISSING"
        yield Text.assemble(f"{_ranks(rank):<13}", bar, f"  {state} of {rank['total'] / _GIB:.1f}")


def _figures(ranks: Sequence[dict[str, Any]]) -> Table:
    """Every line of every stage; they add up to the total."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    names = [*(name for name in LINES if any(rank[name] for rank in ranks)), "free", "total"]
    for heading in ("layers", *(LINES[name][2] if name in LINES else name for name in names)):
        table.add_column(heading, justify="right")
    for rank in ranks:
        figures = (f"{rank[name] / _GIB:.2f}" for name in names)
        table.add_row(_ranks(rank), str(rank["layers"]), *figures)
    return table


def _ranks(rank: dict[str, Any]) -> str:
    last = rank["rank"] + rank["count"] - 1
    return f"rank {last}" if rank["count"] == 1 else f"ranks {rank['rank']}-{last}"


def _legend() -> Text:
    text = Text()
    for glyph, style, words in LINES.values():
        text.append(glyph, style)
        text.append(f" {words}  ", "dim")
    return text.append("· free", "dim")


def _remarks(plan: dict[str, Any]) -> Iterator[tuple[str, list[str], str]]:
    broken = [f"{each['rule']}: {each['message']}\n    -> {each['fix']}" for each in plan["violations"]]
    yield "Does not hold", broken, "bold red"
    yield "Not sized", list(plan["unsized"]), "bold yellow"
    yield "Notes", [f"{note}" for note in (*plan["notes"], *plan["launch"]["notes"])], "bold"


def size_text(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} GiB"


def count_text(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"


def milliseconds_text(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f} ms"
