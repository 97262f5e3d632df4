"""Lengths at which something in a model or its runtime begins anew: pages, chunks, windows, blocks, kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass

from day0.profile.profile import ArchitectureProfile

SIZES_IN_TOKENS = ("window", "conv_kernel", "top_k", "pool", "ratio", "block", "chunk", "relative_extent")
"""Fields of a mixer's parts that count tokens, or entries that tokens are kept in."""
RECURRENCE_CHUNK = 64
"""Tokens that the chunked form of a recurrence takes at a time."""
RESIDUES = 16


def model_sizes(profile: ArchitectureProfile) -> tuple[int, ...]:
    """Every size in tokens that the mixers of a model have; of an indexer also what its chosen blocks hold."""
    sizes = {value for layer in profile.layers for value in _sizes(layer.mixer)}
    if any(layer.state_shapes() for layer in profile.layers):
        sizes.add(RECURRENCE_CHUNK)
    return tuple(sorted(sizes))


def _sizes(part: object) -> Iterator[int]:
    if isinstance(part, tuple):
        for item in part:
            yield from _sizes(item)
    if not is_dataclass(part):
        return
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    own = {name: values[name] for name in SIZES_IN_TOKENS if isinstance(values.get(name), int)}
    yield from own.values()
    for shared in ("block", "pool"):
        if own.get("top_k") and own.get(shared):
            yield own["top_k"] * own[shared]
    for value in values.values():
        yield from _sizes(value)


def boundary_lengths(sizes: Iterable[int], longest: int, residues: int = RESIDUES) -> tuple[int, ...]:
    """Prompt lengths up to `longest`: around every size and twice it, so many `residues` in a row, and the last two."""
    around = {multiple * size + step for size in sizes for multiple in (1, 2) for step in (-1, 0, 1)}
    first = max(1, min(33, longest - residues))
    wanted = {1, 2, longest - 1, longest} | around | set(range(first, first + residues))
    return tuple(sorted(length for length in wanted if 0 < length <= longest))
