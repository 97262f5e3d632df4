"""Choices of routers and indexers, compared as choices: a flip is an exact tie, a near tie, or a fault."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

Flip = Literal["exact tie", "near tie", "fault", "unknown"]

CHOICE_POINTS = frozenset({"ffn.topk_ids", "ffn.topk_weights", "mixer.topk_ids", "mixer.topk_blocks"})
"""What a run that replays another's choices takes from it."""
FED_POINTS = frozenset({"embed", "mixer_in", "mixer_out", "ffn_in", "ffn_out", "output", "norm"})
"""What a run that is fed from another takes from it besides: every block then reads the other run's input."""
SCORES_OF = {
    "ffn.topk_ids": ("ffn.choice_scores", "ffn.router_logits"),
    "mixer.topk_ids": ("mixer.index_scores",),
    "mixer.topk_blocks": ("mixer.index_scores",),
}
"""By which point a choice is made; the first that a trace has."""
PEAK = 4.0
"""How many times its even share of a row's error a single score may carry."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A layer's choices against the reference's: how many tokens chose another set, and why.

    `gap` is the largest distance, in the reference's scores, between what it chose and what the candidate chose in its
    place; `noise` how far rounding may move such a score. `position` is the first token that flipped, `order` counts
    tokens with the same set in another order, `repeated` those that chose something twice.
    """

    tensor: str
    layer: int | None
    step: int
    tokens: int
    flips: int
    exact_ties: int
    near_ties: int
    faults: int
    unknown: int
    order: int
    repeated: int
    gap: float | None
    noise: float | None
    position: int | None
    flipped: tuple[int, ...]


def judge_choices(
    tensor: str,
    layer: int | None,
    step: int,
    candidate: Tensor,
    reference: Tensor,
    scores: Tensor | None,
    tolerance: float,
) -> Decision:
    """Compare ids [tokens, chosen]; `scores` [tokens, options] are the reference's, None where it has none.

    A flip between scores that are equal is an exact tie; within the noise, which is `tolerance` relative to a row of
    scores, a near tie; anything else is a fault, and so is one option chosen twice.
    """
    found, wanted = candidate.flatten(1), reference.flatten(1)
    repeats = _repeats(found) & ~_repeats(wanted)
    differ = (found.sort(dim=-1).values != wanted.sort(dim=-1).values).any(dim=-1)
    order = ~differ & (found != wanted).any(dim=-1)
    gaps, noises, kinds = [], [], []
    rows = differ.nonzero().flatten().tolist()
    for row in rows:
        gap, noise = _gap(found[row], wanted[row], None if scores is None else scores[row], tolerance)
        kinds.append(_kind(bool(repeats[row]), gap, noise))
        if gap is not None and noise is not None:
            gaps.append(gap)
            noises.append(noise)
    return Decision(
        *(tensor, layer, step, len(wanted), len(rows)),
        exact_ties=kinds.count("exact tie"),
        near_ties=kinds.count("near tie"),
        faults=kinds.count("fault"),
        unknown=kinds.count("unknown"),
        order=int(order.sum()),
        repeated=int(repeats.sum()),
        gap=max(gaps, default=None),
        noise=max(noises, default=None),
        position=next(
            (row for row, kind in zip(rows, kinds, strict=True) if kind == "fault"), rows[0] if rows else None
        ),
        flipped=tuple(rows),
    )


def _kind(repeated: bool, gap: float | None, noise: float | None) -> Flip:
    if repeated:
        return "fault"
    if gap is None or noise is None:
        return "unknown"
    if gap == 0.0:
        return "exact tie"
    return "near tie" if abs(gap) <= noise else "fault"


def _repeats(ids: Tensor) -> Tensor:
    ordered = ids.sort(dim=-1).values
    return ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(dim=-1)


def _gap(found: Tensor, wanted: Tensor, scores: Tensor | None, tolerance: float) -> tuple[float | None, float | None]:
    """The largest score that was given up less the smallest that was taken for it, and the noise of a gap."""
    left = [option for option in wanted.tolist() if option >= 0 and option not in found.tolist()]
    taken = [option for option in found.tolist() if option >= 0 and option not in wanted.tolist()]
    if scores is None or scores.dim() != 1:
        return None, None
    if len(left) != len(taken) or max([*left, *taken], default=0) >= len(scores):
        return float("inf"), 0.0  # chose another number of options, or one that is not there
    values = scores.double()
    finite = values[values.isfinite()]
    size = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    return float(values[left].max() - values[taken].min()), 2 * PEAK * tolerance * size


def weights_by_option(weights: Tensor, ids: Tensor) -> Tensor:
    """Weights [tokens, chosen] in the order of option numbers, so that order alone is no deviation."""
    return weights.gather(-1, ids.argsort(dim=-1))


@dataclass(slots=True)
class Taint:
    """Rows that may differ because a choice before them was a tie: `now` in this layer, `later` behind it."""

    now: set[int] = field(default_factory=set)
    first: int | None = None
    all_steps: bool = False
    layer: int | None = None

    def enter(self, layer: int | None) -> None:
        if layer != self.layer:
            if self.now:
                self.first = min([*self.now, *([] if self.first is None else [self.first])])
            self.now, self.layer = set(), layer

    def clean(self, rows: int) -> Tensor:
        """Which rows [rows] can be judged."""
        clean = torch.ones(rows, dtype=torch.bool)
        if self.first is not None:
            clean[self.first :] = False
        clean[[row for row in self.now if row < rows]] = False
        return clean & (not self.all_steps)

    @property
    def any(self) -> bool:
        return bool(self.now) or self.first is not None or self.all_steps
