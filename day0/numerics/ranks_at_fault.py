"""Which of several ranks has the wrong numbers: each one's own part is held against the reference's."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from day0.numerics.joining_ranks import ranks_differ, shares
from day0.numerics.metrics import Allowance, difference
from day0.numerics.reading import Recording


def worst_of_ranks(candidate: Recording, key: str, found: Tensor, wanted: Tensor, allowed: Allowance) -> Tensor:
    """Where ranks differ in what they ought to have alike, the numbers of the one that is farthest off; else `found`.

    Two ranks may round differently, so that a difference between them is judged like any other.
    """
    if not ranks_differ(candidate.held.get(key, ())) or found.shape != wanted.shape:
        return found
    return max((load(key) for load in candidate.alone.values()), key=lambda tensor: _off(tensor, wanted, allowed))


def rank_at_fault(candidate: Recording, key: str, wanted: Tensor, allowed: Allowance) -> tuple[int | None, str]:
    """The rank that is farthest off where others are right, and who is which in words.

    None where all are wrong, where the tensor is a sum, whose terms are nobody's alone, or where one rank has it all.
    """
    parts = shares(candidate.held.get(key, ()))
    if len(parts) < 2:
        return None, ""
    tensors = {rank: candidate.alone[rank](key) for rank in parts}
    if any(tensor.shape != wanted.shape for tensor in tensors.values()):
        return None, ""
    errors = {rank: _off(part(tensors[rank]), part(wanted), allowed) for rank, part in parts.items()}
    wrong = [rank for rank, error in errors.items() if not error <= allowed.limit]
    if not wrong or len(wrong) == len(parts):
        return None, ""
    right = ", ".join(str(rank) for rank in parts if rank not in wrong)
    return max(wrong, key=errors.__getitem__), f"wrong on rank {', '.join(map(str, wrong))}, right on {right}"


def _off(found: Tensor, wanted: Tensor, allowed: Allowance) -> float:
    """How far numbers are off; whole numbers are right or not, and what is not finite is off without bound."""
    if torch.equal(found, wanted):
        return 0.0
    if not wanted.is_floating_point() or not bool(found.isfinite().all()):
        return math.inf
    error = allowed.error_of(difference(found, wanted))
    return error if error == error else math.inf
