"""An inspection as one HTML file that opens offline: no script, no network, everything escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from day0.coverage import STATUSES
from day0.report.inspect_document import InspectDocument, LayerFacts, OperatorFacts
from day0.report.inspect_extras_text import counts_text
from day0.report.inspect_quantities import bytes_text, count_text
from day0.report.inspect_text import fact_rows, layers_text, values_text

PALETTE = ("#3b6fb6", "#5a9e4b", "#d9a520", "#a86bb8", "#c4553f", "#5fb3c4", "#8a8a8a", "#b5838d", "#6d6875")
_CONTEXTS = (4096, 32768, 131072, 1048576)


@dataclass(frozen=True, slots=True)
class _Share:
    """One part of a bar: its name, width in percent and what it stands for."""

    name: str
    percent: float
    text: str
    colour: str


@dataclass(frozen=True, slots=True)
class _Kind:
    """Layers that are alike; `first` is one of them."""

    numbers: tuple[int, ...]
    first: LayerFacts


def html_document(report: InspectDocument) -> str:
    """The page as text."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["size"] = bytes_text
    environment.filters["count"] = count_text
    environment.filters["layers"] = layers_text
    environment.filters["values"] = values_text
    environment.filters["calls"] = counts_text
    return environment.get_template("inspect.html.j2").render(
        report=report,
        facts=[*fact_rows(report)],
        operators=_worst_first(report.operators),
        statuses=STATUSES,
        groups=_shares({} if report.params is None else report.params.groups, count_text),
        formats=_shares(report.weights.formats, bytes_text),
        mixer_colours=_colours(layer.mixer for layer in report.layers),
        ffn_colours=_colours(layer.ffn for layer in report.layers),
        kinds=_kinds(report.layers),
        contexts=_cache_at(report),
        parts=_parts(report),
    )


def _worst_first(operators: Sequence[OperatorFacts]) -> list[tuple[bool, list[OperatorFacts]]]:
    """(whether they are verified, needs): first those that want attention, the gravest first."""
    ranked = sorted(operators, key=lambda need: -STATUSES.index(need.status))
    return [(verified, list(needs)) for verified, needs in groupby(ranked, key=lambda need: need.status == "verified")]


def _colours(kinds: Iterator[str]) -> dict[str, str]:
    return {kind: PALETTE[place % len(PALETTE)] for place, kind in enumerate(dict.fromkeys(kinds))}


def _shares(sizes: Mapping[str, int], text: object) -> list[_Share]:
    """The parts that are there, the largest first."""
    assert callable(text)
    total = sum(sizes.values())
    ranked = sorted(((size, name) for name, size in sizes.items() if size), reverse=True)
    return [
        _Share(name.replace("_", " "), 100 * size / total, text(size), PALETTE[place % len(PALETTE)])
        for place, (size, name) in enumerate(ranked)
    ]


def _kinds(layers: Sequence[LayerFacts]) -> list[_Kind]:
    alike: dict[tuple[object, ...], list[LayerFacts]] = {}
    for layer in layers:
        alike.setdefault((layer.mixer, layer.ffn, layer.residual, layer.operators), []).append(layer)
    return [_Kind(tuple(layer.index for layer in found), found[0]) for found in alike.values()]


def _cache_at(report: InspectDocument) -> list[tuple[int, int]]:
    """(tokens, bytes of one sequence of that length), at lengths up to the longest."""
    cache, longest = report.cache, report.context.max_position
    if cache is None:
        return []
    fixed = cache.state_bytes_per_sequence + cache.window_bytes_per_sequence
    lengths = [length for length in _CONTEXTS if longest is None or length < longest]
    lengths += [longest] if longest else []
    per_token = cache.kv_bytes_per_token + cache.index_bytes_per_token
    return [(length, per_token * length + fixed) for length in lengths]


def _parts(report: InspectDocument) -> list[tuple[str, Mapping[str, object]]]:
    """What else the configuration tells, part by part."""
    parts = (
        ("Experts", report.experts),
        ("Vision", report.vision),
        ("Audio", report.audio),
        ("Layers that predict further ahead", report.mtp),
        ("Quantisation", report.quantization),
    )
    return [(name, found) for name, found in parts if found]
