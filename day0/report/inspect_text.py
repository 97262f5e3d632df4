"""An inspection on one screen: what the model is, what is new or missing, which operators we have, what to do next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from day0.coverage import STATUSES, Status
from day0.errors import Finding
from day0.report.inspect_diff import ProfileDiff
from day0.report.inspect_document import InspectDocument, OperatorFacts
from day0.report.inspect_extras_text import scaffold_text, trace_table
from day0.report.inspect_quantities import bytes_text, count_text

STATUS_STYLES: Mapping[Status, str] = {
    "verified": "green",
    "unverified": "yellow",
    "constraint": "bold red",
    "gap": "bold red",
}
SEVERITY_STYLES: Mapping[str, str] = {"error": "bold red", "warning": "yellow", "note": "dim"}
PLAIN_DECODER = frozenset(
    (
        "embedding_lookup",
        "rms_norm",
        "linear",
        "rope_table",
        "rope",
        "paged_cache_write",
        "paged_gqa_attention",
        "residual_add",
        "silu_and_mul",
        "lm_head",
        "sampling",
    )
)
"""What every Llama-like model needs; anything beyond it makes a model worth a second look."""

_FINDINGS_SHOWN = 8
_GROUPS_SHOWN = 5


def render(report: InspectDocument, console: Console) -> None:
    """Print the report; it fits one screen for any model whose parts are known."""
    console.print(_headline(report))
    _section(console, "", _facts(report))
    if report.operators:
        _section(console, _operators_headline(report), _operators(report.operators))
    if report.findings:
        _section(console, "Findings", _findings(report.findings))
    if report.diff is not None:
        _section(console, f"Against {report.diff.other}", _diff(report.diff))
    if report.trace is not None:
        _section(console, f"Upstream definition: {report.trace['definition']}", trace_table(report.trace))
    if report.scaffold is not None:
        _section(console, "Scaffold", scaffold_text(report.scaffold))
    _section(console, "Next", _steps(report.next))


def _section(console: Console, title: str | Text, body: RenderableType) -> None:
    if title:
        console.print()
        console.print(Text(title, style="bold") if isinstance(title, str) else title)
    console.print(Padding(body, (0, 0, 0, 2), expand=False))


def _headline(report: InspectDocument) -> Text:
    model = report.model
    text = Text(model.id, style="bold")
    if model.family is not None:
        text.append(f"  {model.family}", style="bold cyan")
    else:
        read = model.likeness is not None and model.likeness.read
        nearest = f", {'read as' if read else 'nearest'} {model.nearest_family}" if model.nearest_family else ""
        text.append(f"  unknown family ({model.model_type or 'no model_type'}{nearest})", style="bold red")
    if report.params is not None:
        text.append(f"  {count_text(report.params.total)} parameters")
        if report.params.active != report.params.total:
            text.append(f", {count_text(report.params.active)} active")
    if model.family is not None and not model.native:
        text.append("  not in the reference runtime", style="yellow")
    return text


def _facts(report: InspectDocument) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in fact_rows(report):
        grid.add_row(label, value)
    return grid


def fact_rows(report: InspectDocument) -> Iterator[tuple[str, str]]:
    if report.layers:
        mixers, feed_forwards = (_counted(counts) for counts in (report.layer_counts.mixer, report.layer_counts.ffn))
        residuals = ", ".join(dict.fromkeys(layer.residual.replace("_", " ") for layer in report.layers))
        residuals = "" if residuals == "plain" else f"; {residuals}"
        yield "layers", f"{len(report.layers)}: {mixers}; {feed_forwards}{residuals}"
    if report.experts is not None:
        yield "experts", _experts_text(report.experts)
    if report.params is not None:
        yield "parameters", _groups_text(report.params.groups, report.params.total)
    yield "weights", _weights_text(report)
    if report.cache is not None:
        yield "cache", _cache_text(report)
    if report.context.max_position is not None:
        yield "context", f"{report.context.max_position:,} tokens ({report.context.source_field})"
    if report.mtp is not None:
        yield (
            "mtp",
            f"{report.mtp['layers']} layers beside the decoder, {count_text(report.mtp['params'] or 0)} parameters",
        )
    if report.vision is not None:
        vision = report.vision
        yield (
            "vision",
            f"{vision['num_layers']} layers of {vision['hidden_size']}, patch {vision['patch_size']}, "
            f"{vision['merge'][0]} x {vision['merge'][1]} patches a token{_engine_text(vision)}",
        )
    if report.audio is not None:
        audio = report.audio
        yield (
            "audio",
            f"{audio['num_layers']} layers of {audio['hidden_size']}, {audio['frames_per_token']:,} "
            f"{'frames' if audio['features'] > 1 else 'samples'} a token{_engine_text(audio)}",
        )


def _engine_text(tower: Mapping[str, Any]) -> str:
    return "" if tower["native"] else "; not in the reference runtime"


def _counted(counts: Mapping[str, int]) -> str:
    return " + ".join(f"{count} {kind}" for kind, count in counts.items())


def _experts_text(experts: Mapping[str, int]) -> str:
    text = f"{experts['routed']} in each of {experts['layers']} layers, {experts['top_k']} per token, "
    text += f"{experts['reads']} -> {experts['width']} wide"
    return text + (f"; shared MLP {experts['shared_width']} wide" if experts["shared_width"] else "")


def _groups_text(groups: Mapping[str, int], total: int) -> str:
    """The largest groups by share."""
    ranked = sorted(((count / total, group.replace("_", " ")) for group, count in groups.items()), reverse=True)
    shown = [f"{group} {share:.1%}" for share, group in ranked[:_GROUPS_SHOWN] if share >= 0.0005]
    rest = sum(share for share, _ in ranked[len(shown) :])
    return ", ".join([*shown, f"rest {rest:.1%}"] if rest >= 0.0005 else shown)


def _weights_text(report: InspectDocument) -> str:
    weights = report.weights
    if weights.bytes is None or weights.tensors is None:
        return "unknown: no headers here, and the config alone does not tell"
    formats = ", ".join(f"{name} {bytes_text(size)}" for name, size in weights.formats.items())
    where = f"in {weights.shards} files" if weights.counted_from == "headers" else "by the config; no headers here"
    return f"{bytes_text(weights.bytes)} ({formats}), {weights.tensors:,} tensors {where}"


def _cache_text(report: InspectDocument) -> str:
    assert report.cache is not None
    cache = report.cache
    parts = [f"{bytes_text(cache.kv_bytes_per_token)} a token in {cache.dtype}"]
    if cache.index_bytes_per_token:
        parts.append(f"{bytes_text(cache.index_bytes_per_token)} a token for the indexer")
    if cache.window_bytes_per_sequence:
        parts.append(f"{bytes_text(cache.window_bytes_per_sequence)} of windows a sequence")
    if cache.state_bytes_per_sequence:
        parts.append(f"{bytes_text(cache.state_bytes_per_sequence)} of state a sequence")
    longest = report.context.max_position
    if longest:
        growing = (cache.kv_bytes_per_token + cache.index_bytes_per_token) * longest
        full = growing + cache.state_bytes_per_sequence + cache.window_bytes_per_sequence
        parts.append(f"{bytes_text(full)} at full context")
    return ", ".join(parts)


def _operators_headline(report: InspectDocument) -> Text:
    text = Text("Operators", style="bold")
    text.append(f" on {report.device}: {len(report.operators)} needs  ", style="default")
    shown = [(status, report.coverage[status]) for status in STATUSES if report.coverage[status]]
    for index, (status, count) in enumerate(shown):
        text.append(", " if index else "", style="default")
        text.append(f"{count} {status}", style=STATUS_STYLES[status])
    return text


def _operators(operators: Sequence[OperatorFacts]) -> RenderableType:
    """Worst first: what is lacking with its sizes, the unverified by reason, the verified by name."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for status in ("gap", "constraint"):
        for needs in _alike(o for o in operators if o.status == status):
            table.add_row(Text(status, style=STATUS_STYLES[status]), Text(_lacking_text(needs)))
    for reason, names in _by_reason(o for o in operators if o.status == "unverified"):
        body = Text(", ".join(names))
        body.append(f"\n{reason}", style="dim")
        table.add_row(Text("unverified", style=STATUS_STYLES["unverified"]), body)
    verified = [*dict.fromkeys(o.name for o in operators if o.status == "verified")]
    for label, listed in (
        ("", [name for name in verified if name not in PLAIN_DECODER]),
        ("as in any decoder: ", [name for name in verified if name in PLAIN_DECODER]),
    ):
        if listed:
            body = Text(label + ", ".join(listed), style="dim" if label else "")
            table.add_row(Text("verified", style=STATUS_STYLES["verified"]), body)
    return table


def _alike(operators: Iterable[OperatorFacts]) -> list[list[OperatorFacts]]:
    """Needs that differ in their sizes alone, together."""
    groups: dict[tuple[str, str], list[OperatorFacts]] = defaultdict(list)
    for need in operators:
        groups[need.name, need.reason].append(need)
    return list(groups.values())


def _lacking_text(needs: Sequence[OperatorFacts]) -> str:
    first = needs[0]
    sizes = sizes_text(first) if len(needs) == 1 else f"{len(needs)} sizes, the first {sizes_text(first)}"
    layers = sorted({layer for need in needs for layer in need.layers})
    return f"{first.name} ({sizes}) in {layers_text(layers)}: {first.reason}"


def _by_reason(operators: Iterable[OperatorFacts]) -> list[tuple[str, tuple[str, ...]]]:
    names: dict[str, dict[str, None]] = defaultdict(dict)
    for need in operators:
        names[f"{need.provider}: {need.reason}"][need.name] = None
    return [(reason, tuple(found)) for reason, found in names.items()]


def sizes_text(need: OperatorFacts) -> str:
    return ", ".join(f"{name} {size}" for name, size in need.shapes.items())


def layers_text(layers: Sequence[int]) -> str:
    """Layer numbers as ranges: "layers 0-3, 7"; "outside the layers" for none."""
    if not layers:
        return "no decoder layer"
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    if len(runs) > 6:
        return f"{len(layers)} layers from {layers[0]} to {layers[-1]}"
    ranges = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return f"layer{'s' if len(layers) > 1 else ''} {ranges}"


def _findings(findings: Sequence[Finding]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings[:_FINDINGS_SHOWN]:
        body = Text(finding.message)
        body.append(f"\n{finding.where}", style="dim")
        if finding.hint:
            body.append(f" · {finding.hint}", style="dim")
        table.add_row(Text(finding.severity, style=SEVERITY_STYLES[finding.severity]), body)
    if len(findings) > _FINDINGS_SHOWN:
        table.add_row("", Text(f"and {len(findings) - _FINDINGS_SHOWN} more; --json lists all", style="dim"))
    return table


def _diff(diff: ProfileDiff) -> RenderableType:
    sizes = Table.grid(padding=(0, 2))
    for justify in ("left", "right", "right", "right"):
        sizes.add_column(justify=justify, no_wrap=True)
    for size in (size for size in diff.sizes if size.this or size.other):
        show = count_text if size.name.startswith("params") else bytes_text
        ratio = f"x {size.ratio:.3g}" if size.ratio else ""
        sizes.add_row(Text(size.name, style="dim"), show(size.this), show(size.other), ratio)
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column(overflow="fold")
    for label, names in (
        ("new operators", diff.new_operators),
        ("not needed", diff.dropped_operators),
        ("other sizes", diff.resized_operators),
    ):
        if names:
            lines.add_row(label, ", ".join(names))
    # What a part that the other lacks does not do is of no interest.
    here = [(e.field, values_text(e.this)) for e in diff.fields if e.other is None and e.this != (False,)]
    there = [(e.field, values_text(e.other)) for e in diff.fields if e.this is None and e.other != (False,)]
    both = [
        (entry.field, f"{values_text(entry.this)} (there {values_text(entry.other)})")
        for entry in diff.fields
        if entry.this is not None and entry.other is not None
    ]
    for label, entries in (("changed", both), ("only here", here), ("only there", there)):
        for number, (part, text) in enumerate(_by_part(entries)):
            lines.add_row("" if number else label, Text(f"{part}: ", style="bold") + Text(text) if part else text)
    return Group(sizes, lines)


def _by_part(entries: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """(part, "field value, ...") with fields grouped by the part of the model they belong to ("mixer.kda")."""
    parts: dict[str, list[str]] = defaultdict(list)
    for path, value in entries:
        words = path.split(".")
        depth = 2 if words[0] in ("mixer", "feed_forward") else len(words) - 1
        parts[".".join(words[:depth])].append(f"{'.'.join(words[depth:])} {value}")
    return [(part, ", ".join(texts)) for part, texts in parts.items()]


def values_text(values: Sequence[object] | None) -> str:
    return "/".join(f"{value:.6g}" if isinstance(value, float) else str(value) for value in values or ())


def _steps(steps: Sequence[str]) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for number, step in enumerate(steps, start=1):
        grid.add_row(f"{number}.", step)
    return grid
