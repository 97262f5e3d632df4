"""Plots of a checklist result as inline SVG: latency, error per layer, memory over time and against the plan."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from day0.checklist.checklist import ChecklistResult

_INK, _LIMIT = "#24292f", "#b3261e"
_COLOURS = ("#0b6e99", "#d98e04", "#6b7f3a", "#8250a0", "#7a6a5a")


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot that can be drawn: `draw` fills a figure of `height` inches."""

    draw: Callable[[Any], None]
    height: float

    def svg(self) -> str:
        return _svg(self.draw, height=self.height).rstrip()


def checklist_plots(result: ChecklistResult) -> dict[str, Plot]:
    """Plots by title; one without data is left out.

    Measured keys that are drawn: `ttft_samples_ms`, `tpot_samples_ms`; `errors` (error by tensor, in execution
    order) with `tolerances`, checks over the same tensors in one plot; `planned_bytes` and `measured_bytes` (by part);
    `plan_bytes` and `allocated_bytes` (line by line). The memory of the run itself is in `result.memory`.
    """
    plots: dict[str, Plot] = {}
    latencies = {
        check.id: check.measured for check in result.checks() if len(check.measured.get("ttft_samples_ms", ())) > 1
    }
    if latencies:
        plots["Latency"] = Plot(lambda figure: _latency(figure, latencies), height=2.6)
    for checks in _by_tensors(result):
        plots[f"Error by tensor: {', '.join(checks)}"] = Plot(_layer_plot(checks), height=2.8)
    for check in result.checks():
        if isinstance(check.measured.get("planned_bytes"), Mapping):
            plots[f"Memory: {check.id}"] = Plot(_memory_plot(check.measured), height=1.7)
        if isinstance(check.measured.get("plan_bytes"), Mapping):
            plots["Memory, planned and held"] = Plot(_plan_plot(check.measured), height=2.2)
    if len(result.memory.get("seconds", ())) > 1:
        plots["Host memory of this process over the run"] = Plot(_memory_curve(result), height=2.2)
    return plots


def _by_tensors(result: ChecklistResult) -> list[dict[str, Mapping[str, Any]]]:
    """Measurements with errors by tensor, grouped where they are about the same tensors."""
    groups: dict[tuple[str, ...], dict[str, Mapping[str, Any]]] = {}
    for check in result.checks():
        errors = check.measured.get("errors")
        if isinstance(errors, Mapping) and len(errors) > 1:
            groups.setdefault(tuple(errors), {})[check.id] = check.measured
    return list(groups.values())


def _svg(draw: Callable[[Any], None], *, height: float) -> str:
    """Draw without a window or the process-wide pyplot state; text stays text, ids depend on nothing but the data."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style = {
        "svg.fonttype": "none", "svg.hashsalt": "day0", "font.size": 8.5, "axes.spines.top": False,
        "axes.spines.right": False, "axes.edgecolor": _INK, "text.color": _INK, "font.family": "sans-serif",
        "axes.labelcolor": _INK, "xtick.color": _INK, "ytick.color": _INK,
    }  # fmt: skip
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(7.4, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue().replace(_INK, "currentColor")  # ink is the page's, by day and by night
    # Inside HTML there is no XML prologue, and a width in points would not follow the page.
    return re.sub(r'(<svg [^>]*?)width="[^"]*pt" height="[^"]*pt"|(<svg [^>]*?)height="[^"]*pt"', r"\1\2",
                  text[text.index("<svg"):], count=1)  # fmt: skip


def _latency(figure: Any, latencies: Mapping[str, Mapping[str, Any]]) -> None:
    """Cumulative share of requests by latency, one curve per load."""
    axes = figure.subplots(1, 2, sharey=True)
    for axis, key, title in zip(
        axes, ("ttft_samples_ms", "tpot_samples_ms"), ("Time to first token", "Time per token"), strict=True
    ):
        for number, measured in enumerate(latencies.values()):
            samples = sorted(measured[key])
            shares = [(rank + 1) / len(samples) for rank in range(len(samples))]
            label = f"{measured.get('concurrency', '?')} at a time"
            axis.step(samples, shares, where="post", label=label, color=_COLOURS[number % len(_COLOURS)])
        axis.set(title=title, xlabel="ms", ylim=(0, 1.03))
        axis.set_xlim(left=0)
    axes[0].set_ylabel("share of requests")
    axes[1].legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _layer_plot(checks: Mapping[str, Mapping[str, Any]]) -> Callable[[Any], None]:
    def draw(figure: Any) -> None:
        axis = figure.subplots()
        for number, (name, measured) in enumerate(checks.items()):
            # A logarithmic axis has no place for exact zero; such points sit on the floor.
            values = [None if value is None else max(1e-9, value) for value in measured["errors"].values()]
            points = [(index, value) for index, value in enumerate(values) if value is not None]
            colour = _COLOURS[number % len(_COLOURS)]
            axis.plot(*zip(*points, strict=True), "o-", markersize=3, linewidth=1, color=colour, label=name)
            for index in (index for index, value in enumerate(values) if value is None):
                axis.axvline(index, color=_LIMIT, linewidth=1, linestyle=":")
            tolerances = measured.get("tolerances", {})
            levels = [tolerances.get(tensor) for tensor in measured["errors"]]
            if None not in levels:
                label = "tolerance" if number == len(checks) - 1 else None
                axis.plot(range(len(levels)), levels, "--", linewidth=1, color=_LIMIT, label=label)
        names = list(next(iter(checks.values()))["errors"])
        ticks = _ticks(len(names))
        axis.set_xticks(ticks, [names[tick].removeprefix("layers.") for tick in ticks], rotation=45, ha="right")
        axis.set(yscale="log", ylabel="error of the worst token")
        figure.legend(frameon=False, fontsize=7.5, ncols=5, loc="outside upper center")

    return draw


def _ticks(count: int) -> Sequence[int]:
    step = max(1, -(-count // 24))
    return range(0, count, step)


def _memory_curve(result: ChecklistResult) -> Callable[[Any], None]:
    """The curve, with the begin of each phase marked where its checks began."""

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        seconds, sizes = result.memory["seconds"], [size / 2**20 for size in result.memory["bytes"]]
        axis.fill_between(seconds, sizes, color=_COLOURS[0], alpha=0.25, linewidth=0)
        axis.plot(seconds, sizes, color=_COLOURS[0], linewidth=1.2)
        begin = max(0.0, seconds[-1] - sum(check.seconds for check in result.checks()))
        for phase in result.phases:
            length = sum(check.seconds for check in phase.checks)
            if length > 0.04 * seconds[-1]:
                axis.axvline(begin, color=_INK, linewidth=0.6, linestyle=":")
                axis.annotate(
                    f" {phase.name}", (begin, 1.0), xycoords=("data", "axes fraction"), fontsize=7.5, va="top"
                )
            begin += length
        axis.set(xlabel="seconds", ylabel="MiB", xlim=(0, seconds[-1]), ylim=(0, 1.15 * max(sizes)))

    return draw


def _memory_plot(measured: Mapping[str, Any]) -> Callable[[Any], None]:
    def draw(figure: Any) -> None:
        axis = figure.subplots()
        colours = iter(_COLOURS * 2)
        for row, key in enumerate(("measured_bytes", "planned_bytes")):
            left = 0.0
            for part, size in measured.get(key, {}).items():
                mib = size / 2**20
                if mib > 0:
                    axis.barh(row, mib, left=left, color=next(colours), label=part)
                left += mib
            axis.annotate(f" {left:,.0f} MiB", (left, row), va="center")
        axis.set_yticks((0, 1), ("measured", "planned"))
        axis.set_xlabel("MiB")
        axis.margins(x=0.12)
        axis.legend(frameon=False, ncols=6, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=7.5)

    return draw


def _plan_plot(measured: Mapping[str, Any]) -> Callable[[Any], None]:
    """Two bars for each line of a plan: what it foresaw, and what was held."""

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        names = list(measured["plan_bytes"])
        for offset, key, label in ((-0.2, "plan_bytes", "planned"), (0.2, "allocated_bytes", "held")):
            sizes = [measured[key].get(name, 0) / 2**20 for name in names]
            places = [place + offset for place in range(len(names))]
            axis.barh(places, sizes, height=0.36, color=_COLOURS[0 if offset < 0 else 1], label=label)
            for place, size in zip(places, sizes, strict=True):
                axis.annotate(f" {size:,.2f} MiB", (size, place), va="center", fontsize=7.5)
        axis.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
        axis.invert_yaxis()
        axis.set_xlabel("MiB")
        axis.margins(x=0.15)
        axis.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=7.5)

    return draw
