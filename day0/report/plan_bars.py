"""Bars of memory: the lines of a rank as cells of a terminal or shares of a page, and what room is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

GIB = 2**30

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

FREE = ("·", "dim", "free")
END_OF_GPU = "┃"
UNKNOWN = "–"


def whole_bytes(ranks: Sequence[Mapping[str, Any]]) -> int:
    """What a full bar stands for: the GPU, or what the neediest rank asks for where that is more."""
    return max(rank["total"] - min(0, rank["free"]) for rank in ranks)


def bar(rank: Mapping[str, Any], width: int, whole: int) -> Text:
    """One rank as `width` cells of `whole` bytes; a line that is there has a cell at least, free cells are dots.

    Where the lines need more than the GPU has, a mark says where it ends.
    """
    sizes = {name: rank[name] for name in LINES if rank[name] > 0}
    free = max(0, whole - sum(sizes.values()))
    text = Text()
    counts = cells([*sizes.values(), free], width)
    for name, count in zip(sizes, counts, strict=False):
        glyph, style, _ = LINES[name]
        text.append(glyph * count, style)
    text.append(FREE[0] * counts[-1], FREE[1])
    if rank["free"] < 0:
        end = min(width - 1, rank["total"] * width // whole)
        text = Text.assemble(text[:end], (END_OF_GPU, "bold red"), text[end + 1 :])
    return text


def cells(sizes: Sequence[int], width: int) -> list[int]:
    """`width` cells shared out by size, the largest remainders first; the last size alone may go without a cell.

    The cells that small sizes are given to be seen at all come from the largest one.
    """
    whole = sum(sizes) or 1
    exact = [size * width / whole for size in sizes]
    counts = [int(share) for share in exact]
    by_remainder = sorted(range(len(sizes)), key=lambda place: counts[place] - exact[place])
    for place in by_remainder[: width - sum(counts)]:
        counts[place] += 1
    for place, size in enumerate(sizes[:-1]):
        largest = max(range(len(counts)), key=lambda each: counts[each])
        if size > 0 and counts[place] == 0 and counts[largest] > 1:
            counts[place], counts[largest] = 1, counts[largest] - 1
    return counts


def legend(names: Sequence[str], *, overfull: bool = False) -> Text:
    """What the glyphs of some lines mean."""
    text = Text()
    end = (END_OF_GPU, "bold red", "end of the GPU's memory")
    for glyph, style, words in (*(LINES[name] for name in names), end if overfull else FREE):
        text.append(glyph, style)
        text.append(f" {words}   ", "dim")
    return text


def fullest(plan: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The rank with least to spare; None where nothing was sized."""
    return min(plan["ranks"], key=lambda rank: rank["free"], default=None)


def ranks_text(rank: Mapping[str, Any]) -> str:
    last = rank["rank"] + rank["count"] - 1
    return f"rank {last}" if rank["count"] == 1 else f"ranks {rank['rank']}-{last}"


def free_text(rank: Mapping[str, Any]) -> str:
    """What a rank has to spare, or lacks."""
    return f"{rank['free'] / GIB:.1f} GiB free" if rank["free"] >= 0 else f"{-rank['free'] / GIB:.1f} GiB MISSING"


def size_text(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f} GiB"


def count_text(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"


def signed_text(value: float | None) -> str:
    """A difference with its sign."""
    return UNKNOWN if value is None else f"{'+' if value >= 0 else '−'}{count_text(abs(value))}"


def milliseconds_text(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.1f} ms"


def headroom_text(plan: Mapping[str, Any], workload: Mapping[str, Any]) -> str:
    """What a plan holds beyond the demand, in requests, tokens and length, or how much it falls short."""
    room = plan["headroom"]
    if room["requests"] is None:
        return "the cache bounds neither requests nor their length"
    asked = f"{workload['concurrency']:,} x {workload['context']:,} tokens"
    parts = [_counted(abs(room["requests"]), "request")]
    if room["tokens"] is not None:
        parts.append(_counted(abs(room["tokens"]), "token"))
    if room["requests"] < 0:
        return f"short of {asked} by {', '.join(parts)}"
    if room["context"] is not None:
        parts.append(f"{_counted(room['context'], 'token')} in each request")
    return f"room beyond {asked} for {', or '.join(parts)}"


def _counted(value: float, noun: str) -> str:
    return f"{count_text(value)} {noun}{'' if value == 1 else 's'}"


def bound_text(plan: Mapping[str, Any]) -> str:
    """What can be said of a plan with parts that are not sized."""
    if plan["ranks"]:
        return "the figures are of what is understood: bounds where the part says so, no verdict"
    if plan["notes"]:
        return "all that bounds it is in the notes"
    return "nothing bounds it: the model came without tensor headers, which would say how large its weights are"
