"""What differs between two models: fields of their profiles, operators, sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from day0.inventory import Fact, OperatorNeed, operators_needed
from day0.profile.cache_sizes import cache_sizes
from day0.profile.parameters import count_parameters
from day0.profile.profile import ArchitectureProfile, LayerSpec

_NOT_FACTS = ("layers", "likeness", "findings", "unused_config_keys", "defaulted_config_keys")
_NOT_FACTS_INSIDE = ("quantization.section", "quantization.rules", "quantization.stored")
"""Told by what became of them: `quantization.groups`."""


@dataclass(frozen=True, slots=True)
class FieldDiff:
    """A field by its path in the profile; a side that lacks it is None, layers that differ give several values."""

    field: str
    this: tuple[Fact, ...] | None
    other: tuple[Fact, ...] | None


@dataclass(frozen=True, slots=True)
class SizeDiff:
    name: str
    this: int
    other: int
    ratio: float | None


@dataclass(frozen=True, slots=True)
class ProfileDiff:
    """This model against `other`. `new_operators` are needed here only, `dropped_operators` there only, and
    `resized_operators` by both at sizes of which some are new here."""

    other: str
    fields: tuple[FieldDiff, ...]
    new_operators: tuple[str, ...]
    dropped_operators: tuple[str, ...]
    resized_operators: tuple[str, ...]
    sizes: tuple[SizeDiff, ...]


def diff_profiles(this: ArchitectureProfile, other: ArchitectureProfile, other_name: str) -> ProfileDiff:
    ours, theirs = _flat(this), _flat(other)
    paths = [*ours, *(path for path in theirs if path not in ours)]
    here, there = operators_needed(this), operators_needed(other)
    names, other_names = _names(here), _names(there)
    known = {_sizes(need) for need in there}
    return ProfileDiff(
        other=other_name,
        fields=tuple(FieldDiff(p, ours.get(p), theirs.get(p)) for p in paths if ours.get(p) != theirs.get(p)),
        new_operators=tuple(name for name in names if name not in other_names),
        dropped_operators=tuple(name for name in other_names if name not in names),
        resized_operators=tuple(
            dict.fromkeys(n.name for n in here if n.name in other_names and _sizes(n) not in known)
        ),
        sizes=tuple(_size_diffs(this, other)),
    )


def _names(needs: Sequence[OperatorNeed]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(need.name for need in needs))


def _sizes(need: OperatorNeed) -> tuple[str, tuple[tuple[str, Fact], ...]]:
    return need.name, tuple(sorted(need.facts.items()))


def _flat(profile: ArchitectureProfile) -> dict[str, tuple[Fact, ...]]:
    """Every fact by dotted path. Layers are told by kind: `mixer.kda.num_heads` holds the values that occur."""
    values: dict[str, dict[Fact, None]] = defaultdict(dict)
    for entry in fields(profile):
        if entry.name not in _NOT_FACTS:
            for path, value in _leaves(entry.name, getattr(profile, entry.name)):
                values[path][value] = None
    values["layers"][profile.num_layers] = None
    counts: dict[str, int] = defaultdict(int)
    for layer in profile.layers:
        for part, spec in (("mixer", layer.mixer), ("feed_forward", layer.feed_forward)):
            counts[f"{part}.{spec.kind}.layers"] += 1
            for path, value in _leaves(f"{part}.{spec.kind}", spec):
                values[path][value] = None
    facts = {path: tuple(found) for path, found in values.items() if [*found] != [None]}
    return facts | {path: (count,) for path, count in counts.items()}


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Fact]]:
    if is_dataclass(value):
        if path == "residual":
            yield path, getattr(value, "kind", None)
        for entry in fields(value):
            yield from _leaves(f"{path}.{entry.name}", getattr(value, entry.name))
    elif path in _NOT_FACTS_INSIDE:
        return
    elif isinstance(value, tuple) and any(isinstance(item, LayerSpec) for item in value):
        yield path, ", ".join(f"{layer.mixer.kind} + {layer.feed_forward.kind}" for layer in value)
    elif isinstance(value, tuple) and any(is_dataclass(item) and "__str__" not in vars(type(item)) for item in value):
        for item in value:
            yield from _leaves(path, item)
    elif isinstance(value, tuple) and all(isinstance(item, tuple) for item in value):
        for name, number in value:
            yield f"{path}.{name}", number
    elif isinstance(value, tuple):
        yield path, ", ".join(map(str, value))
    else:
        yield path, value


def _size_diffs(this: ArchitectureProfile, other: ArchitectureProfile) -> Iterator[SizeDiff]:
    if this.family is None or other.family is None:
        return
    for name, ours, theirs in zip(_SIZE_NAMES, _size_values(this), _size_values(other), strict=True):
        yield SizeDiff(name, ours, theirs, ours / theirs if theirs else None)


_SIZE_NAMES = (
    "params.total",
    "params.active",
    "cache.kv_bytes_per_token",
    "cache.state_bytes_per_sequence",
    "cache.window_bytes_per_sequence",
)


def _size_values(profile: ArchitectureProfile) -> tuple[int, ...]:
    counts, cache = count_parameters(profile), cache_sizes(profile)
    return (
        counts.total,
        counts.active,
        cache.kv_bytes_per_token,
        cache.state_bytes_per_sequence,
        cache.window_bytes_per_sequence,
    )
