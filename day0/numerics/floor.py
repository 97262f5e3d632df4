"""The tolerance of each traced tensor: from a third trace, the reference again in a coarser type; never a constant."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Literal

import torch

from day0.errors import InputError
from day0.numerics.alignment import like_reference
from day0.numerics.metrics import Allowance, difference
from day0.numerics.noise import LEAST_ULPS, MOST
from day0.numerics.reading import Recording

FACTOR = 4.0
"""Tolerance over the floor where candidate and floor are of one type: two correct ways round differently."""
FACTOR_SCALED = 30.0
"""The same where the floor is scaled down to a finer type, whose errors are proportional only roughly."""
Source = Literal["measured", "assumed"]


@dataclass(frozen=True, slots=True)
class Floor:
    """Errors of the reference in a coarser type, by key: worst row and median row.

    Without a measured one the tolerance grows with depth from a few roundings of the coarser side, which is said in
    every report: it is a guess at how a model passes errors on, and models differ.
    """

    source: Source
    eps: float
    worst: Mapping[str, float]
    median: Mapping[str, float]

    def allowance(self, key: str, layer: int | None, num_layers: int, eps: float) -> Allowance:
        """How far a tensor may be off where the coarser of the two sides rounds to `eps`."""
        least = LEAST_ULPS * eps / 2
        if self.source == "assumed":
            return Allowance(min(MOST, least * (1 + (num_layers if layer is None else layer + 1))))
        factor = (FACTOR if eps >= self.eps else FACTOR_SCALED) * eps / self.eps
        if factor * self.worst.get(key, 0.0) <= MOST:
            return Allowance(max(least, factor * self.worst.get(key, 0.0)))
        return Allowance(min(MOST, max(least, factor * self.median.get(key, 0.0))), "median")


def assumed_floor() -> Floor:
    """No measurement."""
    return Floor("assumed", 0.0, {}, {})


def measured_floor(reference: Recording, coarser: Recording) -> Floor:
    """From a trace of the same prompt through the reference's own code in a coarser type."""
    known = coarser.by_key()
    worst: dict[str, float] = {}
    typical: dict[str, float] = {}
    for entry in reference.entries:
        other = known.get(entry.key)
        if other is None:
            continue
        one, two = reference.tensor(entry), coarser.tensor(other)
        if one is None or two is None or not one.is_floating_point() or not two.is_floating_point():
            continue
        one, two, _ = like_reference(entry, one, other, two)
        found = difference(two, one)
        if not math.isnan(found.error):
            worst[entry.key], typical[entry.key] = found.error, found.median
    if not worst:
        return assumed_floor()
    return Floor("measured", rounding_of(coarser), _steadied(reference, worst), _steadied(reference, typical))


def _steadied(reference: Recording, errors: Mapping[str, float]) -> dict[str, float]:
    """One sample of rounding may be lucky, above all that of a single row: no tensor's floor lies below that of the
    same point in other steps, nor below the middle of all layers."""
    entries = {entry.key: entry for entry in reference.entries if entry.key in errors}
    by_name: dict[str, float] = {}
    by_operator: dict[str, list[float]] = defaultdict(list)
    for key, entry in entries.items():
        by_name[entry.name] = max(by_name.get(entry.name, 0.0), errors[key])
        by_operator[entry.operator].append(errors[key])
    middle = {operator: median(values) for operator, values in by_operator.items()}
    return {key: max(by_name[entry.name], middle[entry.operator]) for key, entry in entries.items()}


def rounding_of(*recordings: Recording) -> float:
    """The coarsest eps among the tensors of traces; a trace of float32 and bfloat16 parts counts as bfloat16."""
    names = {entry.dtype for recording in recordings for entry in recording.entries if hasattr(torch, entry.dtype)}
    types = [dtype for name in names if (dtype := getattr(torch, name)).is_floating_point]
    return max((torch.finfo(dtype).eps for dtype in types), default=torch.finfo(torch.float32).eps)


def eps_of(dtype: str) -> float:
    """What a type of activations rounds to; InputError for a name that is none."""
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if dtype not in known:
        raise InputError(f"{dtype!r} is no type of activations", hint=f"known: {', '.join(known)}")
    return torch.finfo(known[dtype]).eps
