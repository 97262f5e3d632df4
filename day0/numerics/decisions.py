"""Choices of routers and indexers, compared as choices: a flip is an exact tie, a near tie, or a fault."""

from __future__ import annotations

from collections import Counter
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
    """Compare ids [tokens, (heads,) chosen]; `scores` [tokens, (heads,) options] are the reference's, or None.

    A flip between scores that are equal is an exact tie; within the noise, which is `tolerance` relative to a row of
    scores, a near tie; anything else is a fault, and so is one option chosen twice. A token is what the worst of its
    heads is.
    """
    heads = candidate.shape[1] if candidate.dim() == 3 else 1
    found, wanted = candidate.flatten(0, -2), reference.flatten(0, -2)
    options = None if scores is None or scores.dim() != candidate.dim() else scores.flatten(0, -2)
    repeats = _repeats(found) & ~_repeats(wanted)
    differ = (found.sort(dim=-1).values != wanted.sort(dim=-1).values).any(dim=-1)
    order = ~differ & (found != wanted).any(dim=-1)
    gaps, noises = [], []
    kinds: dict[int, Flip] = {}
    for row in differ.nonzero().flatten().tolist():
        gap, noise = _gap(found[row], wanted[row], None if options is None else options[row], tolerance)
        kind = _kind(bool(repeats[row]), gap, noise)
        kinds[row // heads] = max(kind, kinds.get(row // heads, kind), key=_WORSE.index)
        if gap is not None and noise is not None:
            gaps.append(gap)
            noises.append(noise)
    counts = Counter(kinds.values())
    return Decision(
        *(tensor, layer, step, len(reference), len(kinds)),
        exact_ties=counts["exact tie"],
        near_ties=counts["near tie"],
        faults=counts["fault"],
        unknown=counts["unknown"],
        order=_tokens(order, heads),
        repeated=_tokens(repeats, heads),
        gap=max(gaps, default=None),
        noise=max(noises, default=None),
        position=next((row for row, kind in kinds.items() if kind == "fault"), next(iter(kinds), None)),
        flipped=tuple(kinds),
    )


_WORSE: tuple[Flip, ...] = ("exact tie", "near tie", "unknown", "fault")


def _tokens(rows: Tensor, heads: int) -> int:
    """Of how many tokens some head is marked in rows [tokens x heads]."""
    return int(rows.unflatten(0, (-1, heads)).any(dim=1).sum())


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
    if len(left) != len(taken) or not left or max([*left, *taken]) >= len(scores):
        return float("inf"), 0.0  # chose another number of options, one twice, or one that is not there
    values = scores.double()
    finite = values[values.isfinite()]
    size = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    return float(values[left].max() - values[taken].min()), 2 * PEAK * tolerance * size


def as_many(one: Tensor, two: Tensor) -> tuple[Tensor, Tensor]:
    """Ids [..., chosen] of two runs, where one chose fewer with -1 in the places that it lacks."""
    width = max(one.shape[-1], two.shape[-1])
    padded = [torch.nn.functional.pad(ids, (0, width - ids.shape[-1]), value=-1) for ids in (one, two)]
    return padded[0], padded[1]


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
