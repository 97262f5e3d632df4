"""The end of two runs: logits against logits, and the first greedy token that differs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from day0.numerics.decisions import PEAK
from day0.numerics.metrics import difference, greedy_margin, kl_divergence, top_k_agreement

TOP_K = 5


@dataclass(frozen=True, slots=True)
class FirstToken:
    """The first position, counted over the prompt and what was generated, whose likeliest next token differs.

    `margin` is the gap of the reference's two best logits there, `noise` how far rounding may move such a gap.
    """

    position: int
    reference: int
    candidate: int
    margin: float
    noise: float

    @property
    def near_tie(self) -> bool:
        return self.margin <= self.noise


@dataclass(frozen=True, slots=True)
class LogitReport:
    """`error` is the relative error over all rows, `worst_kl` in nats, `top_k_agreement` of the `top_k` likeliest."""

    rows: int
    error: float
    worst_kl: float
    mean_kl: float
    top_k: int
    top_k_agreement: float
    first: FirstToken | None
    differing: int


def compare_logits(candidate: Tensor, reference: Tensor, start: int, tolerance: float) -> LogitReport | None:
    """Compare rows [tokens, vocab], the first of which stands at `start`; None where they cannot be compared."""
    if candidate.shape != reference.shape or candidate.dim() != 2 or reference.numel() == 0:
        return None
    if not bool((torch.isfinite(candidate) & torch.isfinite(reference)).all()):
        return None
    found, wanted = candidate.float(), reference.float()
    kl = kl_divergence(found, wanted)
    differ = (found.argmax(-1) != wanted.argmax(-1)).nonzero().flatten().tolist()
    first = None
    if differ:
        row = differ[0]
        noise = 2 * PEAK * tolerance * float(wanted[row].square().mean().sqrt())
        margin = float(greedy_margin(wanted[row : row + 1])[0])
        first = FirstToken(start + row, int(wanted[row].argmax()), int(found[row].argmax()), margin, noise)
    return LogitReport(
        rows=len(wanted),
        error=difference(found, wanted).overall,
        worst_kl=float(kl.max()),
        mean_kl=float(kl.mean()),
        top_k=TOP_K,
        top_k_agreement=top_k_agreement(found, wanted, TOP_K),
        first=first,
        differing=len(differ),
    )
