"""What kind of mistake a deviation looks like: a guess by what would explain it, best explained first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from day0.numerics import kinds_of_rows as by_rows

EXPLAINED = 0.02
"""A transformation explains a deviation where it leaves this share of it, or the tolerance where that is more."""
NEARLY = 0.1
"""The same for a factor that is there in the main: of a norm before a rotation, which mixes its channels."""
SAME_NORM = 1e-2
COARSE = 2.0**-8
"""Rounding of bfloat16: a deviation below it may be that of a coarser type somewhere inside."""
ROTATED = frozenset(
    {"mixer.q", "mixer.k", "mixer.kv", "mixer.k_rope", "mixer.index_q", "mixer.index_k", "mixer.attention"}
)
"""Points behind a rotation by position, or behind one that is turned back."""


@dataclass(frozen=True, slots=True)
class Guess:
    """`kind` in the words of the command contract's report, and one sentence of why."""

    kind: str
    why: str


def guess_kind(
    operator: str,
    candidate: Tensor,
    reference: Tensor,
    others: Mapping[str, Tensor],
    tolerance: float,
    inputs: Collection[str] = (),
) -> Guess:
    """Name the first explanation that leaves next to nothing of the deviation.

    `others` are tensors of the reference's same step by name: what may be missing in a sum, or stand here in the
    wrong place; those in `inputs` came before, so that standing here means that what lies between was left out. Of
    equal shapes float64 on the host; another shape is looked at as such.
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
    limit = max(EXPLAINED * error, min(tolerance, 0.2 * error)) * float(wanted.norm())
    for guess, explained in _explanations(found, wanted, others, inputs):
        if explained is not None and float((explained - found).norm()) <= limit:
            return guess
    return _by_shape_of_error(operator, found, wanted, limit, tolerance)


def _by_shape_of_error(operator: str, found: Tensor, wanted: Tensor, limit: float, tolerance: float) -> Guess:
    """Guesses for which nothing is rebuilt: what is kept, and where the error lies."""
    if _is_permuted(found, wanted, limit):
        return Guess("permutation", "each row has the right values in other places")
    if said := by_rows.moved(found, wanted):
        return Guess(*said)
    delta = float((found - wanted).norm())
    if wanted.dim() > 1 and len(wanted) > 4:
        for guess, explained in _by_factors(found, wanted):
            if float((explained - found).norm()) <= NEARLY * delta:
                return Guess(guess.kind, f"nearly: {guess.why}")
    error = _relative(found, wanted)
    if error <= max(10 * tolerance, COARSE) and _is_noise(found, wanted):
        return Guess("precision only", "a small error spread evenly over all rows")
    if by_rows.at_the_start_only(found, wanted, tolerance):
        return Guess("stale", "the first rows alone deviate, the further the less: something older was there before")
    if operator in ROTATED and _is_rotated(found, wanted):
        return Guess("rotary layout", "all lengths are right, directions are not")
    return Guess("other", "no simple transformation explains it")


def _explanations(
    found: Tensor, wanted: Tensor, others: Mapping[str, Tensor], inputs: Collection[str]
) -> Iterator[tuple[Guess, Tensor | None]]:
    """Guesses, and what the candidate would be if they held."""
    if not bool(found.any()):
        yield Guess("missing term", "it is all zeros"), torch.zeros_like(wanted)
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
    yield from _by_others(found, wanted, others, inputs)
    if wanted.dim() > 1 and len(wanted) > 4:
        delta = found - wanted
        constant = delta.mean(0, keepdim=True).expand_as(delta)
        yield Guess("missing term", "every row lacks the same vector, or has it too often"), wanted + constant
        yield from _by_factors(found, wanted)


def _by_others(
    found: Tensor, wanted: Tensor, others: Mapping[str, Tensor], inputs: Collection[str]
) -> Iterator[tuple[Guess, Tensor]]:
    """Another tensor of the reference stands here, or is missing in the sum, or in it twice."""
    delta = found - wanted
    for name, other in others.items():
        term = other.double()
        if term.shape != wanted.shape or torch.equal(term, wanted):
            continue
        if name in inputs:
            yield Guess("missing term", f"it is the reference's {name}: what lies between is left out"), term
        else:
            yield Guess("stale", f"it is the reference's {name}"), term
        weight = float(term.square().sum())
        share = float((delta * term).sum()) / weight if weight else 0.0
        if abs(share + 1) < 0.05:
            yield Guess("missing term", f"{name} is missing"), wanted - term
        elif abs(share - 1) < 0.05:
            yield Guess("missing term", f"{name} is in it twice"), wanted + term


def _by_factors(found: Tensor, wanted: Tensor) -> Iterator[tuple[Guess, Tensor]]:
    """Factors by channel, by row, by both, by head: fitted in least squares, so they must be few beside the numbers."""
    one, two = found.flatten(1), wanted.flatten(1)
    yield Guess("scale", "each channel has a factor of its own"), (two * _factor(one, two, 0)).view_as(wanted)
    if two.shape[1] < 2:
        return
    yield Guess("scale", "each row has a factor of its own"), (two * _factor(one, two, 1)).view_as(wanted)
    if two.shape[1] > 4:
        both = two
        for _ in range(8):
            both = both * _factor(one, both, 0)
            both = both * _factor(one, both, 1)
        yield Guess("scale", "each row and each channel has a factor of its own"), both.view_as(wanted)
    if wanted.dim() > 2 and wanted.shape[-1] > 4:
        yield Guess("scale", "each head of each row has a factor of its own"), wanted * _factor(found, wanted, -1)


def _factor(found: Tensor, wanted: Tensor, dim: int) -> Tensor:
    """What to multiply `wanted` by along an axis to come nearest to `found`."""
    return (found * wanted).sum(dim, keepdim=True) / wanted.square().sum(dim, keepdim=True).clamp_min(1e-300)


def _relative(one: Tensor, two: Tensor) -> float:
    return float((one - two).norm() / two.norm().clamp_min(1e-300))


def _shape_guess(candidate: Tensor, reference: Tensor) -> Guess:
    shapes = f"{tuple(candidate.shape)} for {tuple(reference.shape)}"
    if sorted(candidate.shape) == sorted(reference.shape):
        return Guess("transposed", f"the axes are in another order: {shapes}")
    return Guess("shape", shapes)


def _is_rotated(found: Tensor, wanted: Tensor) -> bool:
    """A rotation keeps the length of every head; that of one alone may agree by chance."""
    lengths = found.norm(dim=-1), wanted.norm(dim=-1)
    if found.dim() < 2 or lengths[0].numel() < 2:
        return False
    kept = _relative(*lengths)
    return kept < SAME_NORM and _relative(found, wanted) > 5 * kept


def _is_permuted(found: Tensor, wanted: Tensor, limit: float) -> bool:
    rows = (found.flatten(1), wanted.flatten(1)) if found.dim() > 1 else (found[None], wanted[None])
    return float((rows[0].sort(dim=1).values - rows[1].sort(dim=1).values).norm()) <= limit


def _is_noise(found: Tensor, wanted: Tensor) -> bool:
    """The worst row's error is near the median row's, and the error does not follow the reference."""
    if found.dim() < 2:
        return True
    delta = (found - wanted).flatten(1)
    errors = delta.norm(dim=1) / wanted.flatten(1).norm(dim=1).clamp_min(1e-300)
    along = abs(float((delta * wanted.flatten(1)).sum())) / float(delta.norm() * wanted.norm() + 1e-300)
    return float(errors.max()) < 10 * float(errors.median()) and along < 0.3
