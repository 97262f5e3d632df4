"""Mistakes that show in which rows deviate: rows in other places, rows of the token before, the first rows alone."""

from __future__ import annotations

import torch
from torch import Tensor

SAME_ROW = 1e-3
"""Two rows that are this close, relative to their norm, are the same one."""
MOST_ROWS = 2048
"""Rows are looked up among each other up to so many."""
START_SHARE = 0.5
"""Leading rows are few where they are at most this share of all."""


def moved(found: Tensor, wanted: Tensor) -> tuple[str, str] | None:
    """Kind and reason where the rows that deviate are the reference's rows of other places; None where not."""
    if found.dim() < 2 or not 2 < len(found) <= MOST_ROWS:
        return None
    one, two = found.flatten(1), wanted.flatten(1)
    wrong = ~_same(one, two)
    if int(wrong.sum()) < 2:
        return None
    runs = int((wrong[1:] & ~wrong[:-1]).sum()) + int(wrong[0])
    for shift, word in ((1, "before"), (-1, "after")):
        lost = int((wrong & ~_same(one, two.roll(shift, dims=0))).sum())
        if lost <= runs and int(wrong.sum()) > 2 * runs:
            return "off by one", f"rows that deviate are those of the token {word}"
    distance = torch.cdist(one[wrong], two)
    nearest = distance.argmin(dim=1)
    if not bool(_same(one[wrong], two[nearest]).all()):
        return None
    if len(nearest.unique()) == len(nearest) and bool(wrong[nearest].all()):
        return "permutation", f"{len(nearest)} rows are the reference's in other places"
    return "stale", f"{len(nearest)} rows are the reference's of other places, which have them too"


def at_the_start_only(found: Tensor, wanted: Tensor, tolerance: float) -> bool:
    """Whether the rows that deviate are the first few, and the last of them less than the first."""
    if found.dim() < 2 or len(found) < 4:
        return False
    one, two = found.flatten(1), wanted.flatten(1)
    errors = (one - two).norm(dim=1) / two.norm(dim=1).clamp_min(1e-300)
    beyond = (errors > tolerance).nonzero().flatten()
    if not len(beyond) or int(beyond[0]) > 0:
        return False
    # What fades never gets quite to nothing: rows behind the first few count where they are a hundredth of the first.
    felt = (errors > 0.01 * errors[0]).nonzero().flatten()
    return int(felt[-1]) < START_SHARE * len(errors) and bool(errors[int(felt[-1])] <= errors[0])


def _same(one: Tensor, two: Tensor) -> Tensor:
    """Which rows agree, [rows] bool."""
    return (one - two).norm(dim=1) <= SAME_ROW * two.norm(dim=1).clamp_min(1e-300)
