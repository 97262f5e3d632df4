"""What kind of mistake a deviation looks like: a guess by what would explain it, best explained first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

EXPLAINED = 0.02
"""A transformation explains a deviation where it leaves this share of it, or the tolerance where that is more."""
SAME_NORM = 1e-2
ROTATED = frozenset({"mixer.q", "mixer.k", "mixer.k_rope", "mixer.index_q", "mixer.index_k"})
"""Points behind a rotation by position."""


@dataclass(frozen=True, slots=True)
class Guess:
    """`kind` in the words of the command contract's report, and one sentence of why."""

    kind: str
    why: str


def guess_kind(
    operator: str, candidate: Tensor, reference: Tensor, others: Mapping[str, Tensor], tolerance: float
) -> Guess:
    """Name the first explanation that leaves next to nothing of the deviation.

    `others` are tensors of the reference's same step by name: what may be missing in a sum, or stand here in the
    wrong place. Of equal shapes float64 on the host; another shape is looked at as such.
    """
    if candidate.shape != reference.shape:
        return _shape_guess(candidate, reference)
    found, wanted = candidate.double(), reference.double()
    bad = ~found.isfinite() & wanted.isfinite()
    if bad.any():
        row = int(bad.reshape(len(bad) if bad.dim() else 1, -1).any(1).nonzero()[0])
        return Guess("NaN origin", f"{int(bad.sum())} values are not finite, the first at row {row}")
    if not bool((found.isfinite() & wanted.isfinite()).all()):
        return Guess("other", "neither side is finite")
    error = _relative(found, wanted)
    limit = max(EXPLAINED * error, min(tolerance, 0.2 * error))
    for guess, explained in _explanations(operator, found, wanted, others):
        if explained is not None and _relative(explained, found) <= limit:
            return guess
    if operator in ROTATED and _is_rotated(found, wanted):
        return Guess("rotary layout", "the first position and all lengths are right, directions are not")
    if _is_permuted(found, wanted, limit):
        return Guess("permutation", "each row has the right values in other places")
    if error <= 10 * tolerance and _is_noise(found, wanted):
        return Guess("precision only", "a small error spread evenly over all rows")
    return Guess("other", "no simple transformation explains it")


def _explanations(
    operator: str, found: Tensor, wanted: Tensor, others: Mapping[str, Tensor]
) -> Iterator[tuple[Guess, Tensor | None]]:
    """Guesses, and what the candidate would be if they held."""
    yield Guess("sign", "it is the reference times -1"), -wanted
    size = float(wanted.square().sum())
    factor = float((found * wanted).sum()) / size if size else 0.0
    yield Guess("scale", f"it is the reference times {factor:.6g}"), wanted * factor
    if wanted.dim() > 1 and wanted.shape[-1] == wanted.shape[-2]:
        yield Guess("transposed", "the last two axes are exchanged"), wanted.transpose(-1, -2)
    if wanted.dim() > 1 and len(wanted) > 2:
        for shift, word in ((1, "before"), (-1, "after")):
            moved = wanted.roll(shift, dims=0)
            edge = 0 if shift == 1 else len(wanted) - 1
            moved[edge] = found[edge]
            yield Guess("off by one", f"each row is that of the token {word}"), moved
        yield Guess("stale", "all rows are alike"), found[:1].expand_as(found)
    delta = found - wanted
    for name, other in others.items():
        term = other.double()
        if term.shape == wanted.shape and not torch.equal(term, wanted):
            yield Guess("stale", f"it is the reference's {name}"), term
            weight = float(term.square().sum())
            share = float((delta * term).sum()) / weight if weight else 0.0
            if abs(share + 1) < 0.05:
                yield Guess("missing term", f"{name} is missing"), wanted - term
            elif abs(share - 1) < 0.05:
                yield Guess("missing term", f"{name} is in it twice"), wanted + term
    if wanted.dim() > 1:
        columns = wanted.flatten(1)
        channel = (found.flatten(1) * columns).sum(0) / columns.square().sum(0).clamp_min(1e-300)
        if len(columns) > 4:
            yield Guess("scale", "each channel has a factor of its own"), (columns * channel).view_as(wanted)
        row = (found.flatten(1) * columns).sum(1) / columns.square().sum(1).clamp_min(1e-300)
        if columns.shape[1] > 1 and len(columns) > 4:
            yield Guess("scale", "each row has a factor of its own"), (columns * row[:, None]).view_as(wanted)


def _relative(one: Tensor, two: Tensor) -> float:
    return float((one - two).norm() / two.norm().clamp_min(1e-300))


def _shape_guess(candidate: Tensor, reference: Tensor) -> Guess:
    shapes = f"{tuple(candidate.shape)} for {tuple(reference.shape)}"
    if sorted(candidate.shape) == sorted(reference.shape):
        return Guess("transposed", f"the axes are in another order: {shapes}")
    return Guess("shape", shapes)


def _is_rotated(found: Tensor, wanted: Tensor) -> bool:
    """Position 0 is turned by nothing, and a rotation keeps lengths."""
    if found.dim() < 2 or len(found) < 2:
        return False
    first = _relative(found[0], wanted[0])
    lengths = _relative(found[1:].norm(dim=-1), wanted[1:].norm(dim=-1))
    return first < SAME_NORM and lengths < SAME_NORM and _relative(found[1:], wanted[1:]) > 5 * max(first, lengths)


def _is_permuted(found: Tensor, wanted: Tensor, limit: float) -> bool:
    rows = (found.flatten(1), wanted.flatten(1)) if found.dim() > 1 else (found[None], wanted[None])
    return _relative(rows[0].sort(dim=1).values, rows[1].sort(dim=1).values) <= limit


def _is_noise(found: Tensor, wanted: Tensor) -> bool:
    """The worst row's error is near the median row's, and the error does not follow the reference."""
    if found.dim() < 2:
        return True
    delta = (found - wanted).flatten(1)
    errors = delta.norm(dim=1) / wanted.flatten(1).norm(dim=1).clamp_min(1e-300)
    along = abs(float((delta * wanted.flatten(1)).sum())) / float(delta.norm() * wanted.norm() + 1e-300)
    return float(errors.max()) < 10 * float(errors.median()) and along < 0.3
