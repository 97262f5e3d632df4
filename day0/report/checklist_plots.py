"""Plots of a checklist result as inline SVG: latency, error per layer, memory planned against measured."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from day0.checklist.checklist import ChecklistResult

_INK, _MARK, _SECOND, _LIMIT = "#24292f", "#0b6e99", "#d98e04", "#b3261e"


def checklist_plots(result: ChecklistResult) -> dict[str, str]:
    """SVG by title; a plot without data is left out.

    Measured keys that are drawn: `ttft_samples_ms`, `tpot_samples_ms`; `errors` (error by tensor, in execution
    order) with `tolerance`; `planned_bytes` and `measured_bytes` (bytes by part).
    """
    plots: dict[str, str] = {}
    latencies = {
        check.id: check.measured for check in result.checks() if len(check.measured.get("ttft_samples_ms", ())) > 1
    }
    if latencies:
        plots["Latency"] = _svg(lambda figure: _latency(figure, latencies), height=2.6)
    for check in result.checks():
        errors = check.measured.get("errors")
        if isinstance(errors, Mapping) and len(errors) > 1:
            draw = _layer_plot(errors, check.measured.get("tolerance"))
            plots[f"Error by tensor: {check.id}"] = _svg(draw, height=2.8)
        if isinstance(check.measured.get("planned_bytes"), Mapping):
            plots["Memory: planned and measured"] = _svg(_memory_plot(check.measured), height=1.6)
    return plots


def _svg(draw: Callable[[Any], None], *, height: float) -> str:
    """Draw without a window or the process-wide pyplot state; text stays text, ids depend on nothing but the data."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style = {
        "svg.fonttype": "none", "svg.hashsalt": "day0", "font.size": 8.5, "axes.spines.top": False,
        "axes.spines.right": False, "axes.edgecolor": _INK, "text.color": _INK, "font.family": "sans-serif",
    }  # fmt: skip
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(7.4, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
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
            axis.step(samples, shares, where="post", label=label, color=(_MARK, _SECOND, _INK)[number % 3])
        axis.set(title=title, xlabel="ms", ylim=(0, 1.03))
        axis.set_xlim(left=0)
    axes[0].set_ylabel("share of requests")
    axes[0].legend(frameon=False, loc="lower right")


def _layer_plot(errors: Mapping[str, float | None], tolerance: float | None) -> Callable[[Any], None]:
    def draw(figure: Any) -> None:
        axis = figure.subplots()
        names = list(errors)
        # A logarithmic axis has no place for exact zero; such points sit on the floor.
        floor = 1e-9
        values = [max(floor, value) if value is not None else None for value in errors.values()]
        points = [(index, value) for index, value in enumerate(values) if value is not None]
        axis.plot([x for x, _ in points], [y for _, y in points], "o-", markersize=3, linewidth=1, color=_MARK)
        for index, value in enumerate(values):
            if value is None:
                axis.axvline(index, color=_LIMIT, linewidth=1, linestyle=":")
        if tolerance:
            axis.axhline(tolerance, color=_LIMIT, linewidth=1)
            axis.annotate("tolerance", (0, tolerance), color=_LIMIT, va="bottom", fontsize=7.5)
        ticks = _ticks(len(names))
        axis.set_xticks(ticks, [names[tick].removeprefix("layers.") for tick in ticks], rotation=45, ha="right")
        axis.set(yscale="log", ylabel="relative error of the worst token")

    return draw


def _ticks(count: int) -> Sequence[int]:
    step = max(1, -(-count // 24))
    return range(0, count, step)


def _memory_plot(measured: Mapping[str, Any]) -> Callable[[Any], None]:
    def draw(figure: Any) -> None:
        axis = figure.subplots()
        colours = (_MARK, _SECOND, "#6b7f3a", "#8250a0", "#888888")
        for row, key in enumerate(("measured_bytes", "planned_bytes")):
            left = 0.0
            for number, (part, size) in enumerate(measured.get(key, {}).items()):
                mib = size / 2**20
                axis.barh(row, mib, left=left, color=colours[number % len(colours)], label=part)
                left += mib
            axis.annotate(f" {left:,.0f} MiB", (left, row), va="center")
        axis.set_yticks((0, 1), ("measured", "planned"))
        axis.set_xlabel("MiB")
        axis.margins(x=0.12)
        axis.legend(frameon=False, ncols=5, loc="upper center", bbox_to_anchor=(0.5, 1.35), fontsize=7.5)

    return draw
