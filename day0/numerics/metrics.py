"""How far one tensor is from another: shape and finiteness first, then errors relative to the reference's size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["equal", "precision", "deviation", "shape", "not-finite", "constant", "stuck", "empty"]

SMALL_ROW = 0.1
"""A row is measured against its own norm, or against this share of the mean row norm where it is smaller: the
error of a nearly vanishing row says nothing."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One tensor against its reference.

    `error` is the worst row's ||candidate - reference|| / ||reference|| (rows along the first axis: tokens), `median`
    the median row's, `overall` the same over the whole tensor, `max_abs` the largest absolute difference; NaN where
    they could not be formed. `position` is the worst row. `kind` says what was found before any tolerance is applied:
    "stuck" is a candidate whose rows are all alike while the reference's are not, "constant" a reference that
    is one number throughout and so proves nothing.
    """

    kind: Kind
    error: float = float("nan")
    median: float = float("nan")
    overall: float = float("nan")
    max_abs: float = float("nan")
    position: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Allowance:
    """How far a tensor may be off: a limit on the error of its worst row, or of its median row."""

    limit: float
    row: Literal["worst", "median"] = "worst"

    def error_of(self, found: Difference) -> float:
        return found.error if self.row == "worst" else found.median


def difference(candidate: Tensor, reference: Tensor) -> Difference:
    """Compare tensors of shape [rows, ...] in float64."""
    if candidate.shape != reference.shape:
        return Difference("shape", message=f"shape {tuple(candidate.shape)}, reference {tuple(reference.shape)}")
    if reference.numel() == 0:
        return Difference("empty", message="no elements")
    wanted = _rows(reference)
    found = _rows(candidate)
    for side, rows in (("reference", wanted), ("candidate", found)):
        bad = ~torch.isfinite(rows).all(dim=1)
        if bad.any():
            position = int(bad.nonzero()[0])
            return Difference("not-finite", position=position, message=f"{side} has NaN or infinity at row {position}")
    if wanted.numel() > 1 and bool((wanted == wanted.flatten()[0]).all()):
        return Difference("constant", message="the reference is one number throughout")
    delta = found - wanted
    row_norms = wanted.norm(dim=1)
    row_errors = delta.norm(dim=1) / row_norms.clamp_min(SMALL_ROW * float(row_norms.mean()))
    position = int(row_errors.argmax())
    error = float(row_errors[position])
    overall = float(delta.norm() / wanted.norm())
    max_abs = float(delta.abs().max())
    kind: Kind = "equal" if max_abs == 0.0 else "precision"
    if len(found) > 1 and _rows_alike(found) and not _rows_alike(wanted):
        kind = "stuck"
    return Difference(kind, error, float(row_errors.median()), overall, max_abs, position)


def _rows(tensor: Tensor) -> Tensor:
    """[rows, elements] float64 on the host; a vector becomes one row."""
    rows = tensor.detach().to("cpu", torch.float64)
    return rows.reshape(1, -1) if rows.dim() < 2 else rows.flatten(1)


def _rows_alike(rows: Tensor) -> bool:
    return bool((rows == rows[0]).all())


def kl_divergence(candidate: Tensor, reference: Tensor) -> Tensor:
    """KL(reference || candidate) in nats for each row of logits [tokens, vocab] -> [tokens] float64."""
    wanted = torch.log_softmax(reference.to("cpu", torch.float64), dim=-1)
    found = torch.log_softmax(candidate.to("cpu", torch.float64), dim=-1)
    return (wanted.exp() * (wanted - found)).sum(dim=-1).clamp_min(0.0)


def top_k_agreement(candidate: Tensor, reference: Tensor, k: int) -> float:
    """Share of the reference's k likeliest tokens that are among the candidate's, over rows [tokens, vocab]."""
    k = min(k, reference.shape[-1])
    wanted = reference.topk(k, dim=-1).indices
    found = candidate.topk(k, dim=-1).indices
    shared = (wanted.unsqueeze(-1) == found.unsqueeze(-2)).any(dim=-1)
    return float(shared.to(torch.float64).mean())


def greedy_margin(logits: Tensor) -> Tensor:
    """Gap between the best and the second best logit of each row [tokens, vocab] -> [tokens]."""
    best = logits.topk(2, dim=-1).values
    return best[..., 0] - best[..., 1]
