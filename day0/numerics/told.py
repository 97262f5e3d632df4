"""What an endpoint tells of its logits, log probabilities of a few tokens of each row, against a trace's logits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from day0.errors import CannotSay, InputError
from day0.numerics.compare import Verdict
from day0.numerics.joining import whole_prompt
from day0.numerics.reading import Recording
from day0.numerics.tokens import FirstToken

FEWEST = 2
"""Tokens that a row must tell: of one alone neither ranks nor distances are known."""
SHIFT = 2.0
"""A log probability is off by its logit's error and by that of the logarithm of the sum, each as large as the other."""


@dataclass(frozen=True, slots=True)
class Row:
    """Log probabilities (natural) by token id: of the likeliest, and of the one that came next.

    `unnamed` more were told under a name that several tokens have, so that it is not known which they are.
    """

    tokens: Mapping[int, float]
    unnamed: int = 0


@dataclass(frozen=True, slots=True)
class ToldReport:
    """`error` is ||told - own|| / ||own|| over all told log probabilities, with the reference's own.

    `worst_kl` and `mean_kl` (nats) bound KL(reference || endpoint) from below: tokens told are terms of their own, all
    others count as one (log-sum inequality; Cover and Thomas, Elements of Information Theory, 2.7). `agreement` is the
    share of told tokens that are among as many likeliest of the reference's. `row_error` is that of the worst row over
    its tolerance, `position` where it stands.
    """

    verdict: Verdict
    rows: int
    told: int
    deviating: int
    top_k: int
    error: float | None
    worst_kl: float | None
    mean_kl: float | None
    agreement: float | None
    row_error: float | None
    tolerance: float
    position: int | None
    first: FirstToken | None
    differing: int


@dataclass(frozen=True, slots=True)
class _Compared:
    """One row; `excess` is its error over its tolerance."""

    position: int
    squares: tuple[float, float]
    excess: float
    kl: float
    agreement: float
    num_told: int
    other: FirstToken | None


def reference_logits(reference: Recording) -> tuple[torch.Tensor, tuple[int, ...], str]:
    """All rows of logits [tokens, vocab], the token ids they are of, and the key of the first."""
    reference = whole_prompt(reference)
    if reference.prompt_ids is None:
        raise CannotSay("does not say which tokens it is of", where=reference.where)
    if reference.facts.get("images"):
        raise CannotSay("is of a prompt with images, which an endpoint is not asked with here", where=reference.where)
    entries = [entry for entry in reference.entries if entry.operator == "logits" and entry.kept == "whole"]
    if not entries:
        raise CannotSay("has no logits", where=reference.where, hint="day0 trace always keeps them")
    logits = torch.cat([reference.load(entry.key) for entry in entries])
    ids = (*reference.prompt_ids, *(reference.generated_ids or ()))[: len(logits)]
    return logits, ids, entries[0].key


def compare_told(logits: Tensor, told: Mapping[int, Row], limit: float) -> ToldReport:
    """Compare rows of reference logits [tokens, vocab] with what was told of them, by row.

    `limit` is the relative error that a row of logits may have. A told log probability then may be off by that share
    of the row's spread, twice for the normalisation, in the mean square over the row. A row of which less than two
    tokens were told is not checked, and the verdict then is at most "incomplete". Raises InputError for ids outside the
    vocabulary.
    """
    compared = [
        _row(row, logits[row].double(), told[row], limit)
        for row in range(len(logits))
        if row in told and len(told[row].tokens) >= FEWEST
    ]
    others = [row.other for row in compared if row.other is not None]
    beyond = [row for row in compared if not row.excess <= 1.0]
    whole = len(compared) == len(logits) > 0
    if not compared:
        return ToldReport("incomplete", len(logits), 0, 0, 0, *(None,) * 5, limit, None, None, 0)
    worst = max(compared, key=lambda row: row.excess)
    return ToldReport(
        verdict="deviates" if beyond else "equal" if whole else "incomplete",
        rows=len(logits),
        told=len(compared),
        deviating=len(beyond),
        top_k=min(row.num_told for row in compared),
        error=(sum(row.squares[0] for row in compared) / max(sum(row.squares[1] for row in compared), 1e-300)) ** 0.5,
        worst_kl=max(row.kl for row in compared),
        mean_kl=sum(row.kl for row in compared) / len(compared),
        agreement=sum(row.agreement for row in compared) / len(compared),
        row_error=worst.excess * limit,
        tolerance=limit,
        position=(beyond[0] if beyond else worst).position,
        first=others[0] if others else None,
        differing=len(others),
    )


def _row(position: int, logits: Tensor, row: Row, limit: float) -> _Compared:
    """One row [vocab] in float64."""
    told, ids = row.tokens, list(row.tokens)
    if min(ids) < 0 or max(ids) >= len(logits):
        raise InputError(
            f"the endpoint told of tokens up to {max(ids)}, the reference has {len(logits)}", where="endpoint"
        )
    own = torch.log_softmax(logits, dim=-1)
    mine, theirs = own[ids], torch.tensor([told[token] for token in ids], dtype=torch.float64)
    delta = theirs - mine
    noise = SHIFT * limit * float(logits.std(correction=0).clamp_min(1e-300))
    excess = float(delta.square().mean().sqrt()) / max(noise, 1e-300)
    best = own.topk(min(len(own), len(ids) + row.unnamed)).indices.tolist()
    shared = len(set(best) & set(ids)) / len(ids)
    sums = (float(delta.square().sum()), float(mine.square().sum()))
    other = None
    if best[0] in told or not row.unnamed:
        likeliest = max(told, key=told.__getitem__)
        margin = float(own[best[0]] - own[likeliest])
        other = FirstToken(position, best[0], likeliest, margin, noise) if margin > 0 else None
    return _Compared(
        position, sums, excess if excess == excess else math.inf, _kl(mine, theirs), shared, len(ids), other
    )


def _kl(mine: Tensor, theirs: Tensor) -> float:
    """The told tokens' terms of KL, and one for all others together."""
    told = (mine.exp() * (mine - theirs)).sum()
    rest, other = (1 - side.exp().sum().clamp(max=1.0) for side in (mine, theirs))
    tail = rest * (rest.clamp_min(1e-300) / other.clamp_min(1e-12)).log() if rest > 1e-12 else torch.zeros(())
    return max(0.0, float(told + tail))
