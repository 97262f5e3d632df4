"""Whether a checkpoint is what its profile expects to the last tensor, told without looking names up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from day0.profile.tensor_spec import TensorSpec
from day0.source.model_files import TensorHeader

_Run = tuple[list[str], list[TensorSpec]]
"""Names in sorted order, and the spec that each belongs to."""


def stored_as_expected(specs: Sequence[TensorSpec], tensors: Mapping[str, TensorHeader]) -> bool:
    """Whether names, shapes and dtypes are all as expected.

    False says only that it is worth a closer look. Both sides are gone through once in sorted order: half a million
    look-ups in a table of that size would take three times as long.
    """
    if sum(spec.count for spec in specs) != len(tensors):
        return False
    runs = sorted(_sorted_runs(specs), key=lambda run: run[0][0])
    stored = list(tensors)
    in_order = sorted(stored)
    if in_order != list(chain.from_iterable(names for names, _ in runs)):
        return False
    headers: Iterable[TensorHeader] = tensors.values() if stored == in_order else map(tensors.__getitem__, in_order)
    owners = chain.from_iterable(owners for _, owners in runs)
    return all(
        header.shape == spec.shape and header.dtype == spec.dtype for header, spec in zip(headers, owners, strict=True)
    )


def _sorted_runs(specs: Sequence[TensorSpec]) -> list[_Run]:
    """One run for each tensor that is alone, and one for all tensors of the experts of a layer."""
    runs: list[_Run] = [([spec.name], [spec]) for spec in specs if not spec.experts]
    layers: dict[tuple[str, int], dict[str, TensorSpec]] = defaultdict(dict)
    for spec in specs:
        if spec.experts:
            head, tail = spec.name.split("{expert}")
            layers[head, spec.experts][tail] = spec
    # Layers differ in what comes before the expert's number; what comes after it is put in order once for them all.
    orders: dict[tuple[int, tuple[str, ...]], list[tuple[str, str]]] = {}
    for (head, experts), by_tail in layers.items():
        key = (experts, tuple(by_tail))
        if key not in orders:
            orders[key] = sorted((f"{expert}{tail}", tail) for expert in range(experts) for tail in by_tail)
        order = orders[key]
        runs.append(([head + ending for ending, _ in order], [by_tail[tail] for _, tail in order]))
    return runs
