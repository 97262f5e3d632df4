"""`day0 compare`: walks the reference's execution order through two recordings; what was not compared never passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from day0.numerics.alignment import check_prompts, like_reference, meant_instead
from day0.numerics.compare import NodeVerdict, Verdict
from day0.numerics.decisions import FED_POINTS, SCORES_OF, Decision, Taint, as_many, judge_choices, weights_by_option
from day0.numerics.floor import Floor, rounding_of
from day0.numerics.joining import whole_prompt
from day0.numerics.joining_ranks import ranks_differ
from day0.numerics.kinds import guess_kind
from day0.numerics.metrics import Allowance, difference
from day0.numerics.ranks_at_fault import rank_at_fault, worst_of_ranks
from day0.numerics.reading import RANKS_DIFFER, Recording
from day0.numerics.recording import Entry, step_key
from day0.numerics.statistics import Statistics
from day0.numerics.tokens import LogitReport, compare_logits

AddedHow = Literal["measured", "estimated"]


@dataclass(frozen=True, slots=True)
class WalkNode:
    """One tensor of the reference, compared.

    `error` is that of the row which the tolerance is for. `added_error` is what the step itself adds: measured where
    the candidate was fed the reference's inputs, otherwise what growth of the error before it does not explain.
    `position` counts tokens from the start of the prompt; `rank` is the one whose numbers are wrong where others' are
    not.
    """

    tensor: str
    layer: int | None
    operator: str
    step: int
    verdict: NodeVerdict
    error: float | None
    added_error: float | None
    added_how: AddedHow | None
    inherited_error: float | None
    tolerance: float
    position: int | None = None
    kind: str = ""
    message: str = ""
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome; `first` is the first node that deviates. `replayed` is the same with the reference's choices."""

    verdict: Verdict
    first: WalkNode | None
    nodes: tuple[WalkNode, ...]
    decisions: tuple[Decision, ...]
    logits: LogitReport | None
    replayed_logits: LogitReport | None
    missing_reference: tuple[str, ...]
    missing_candidate: tuple[str, ...]
    floor: str
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sides:
    """What is compared: the candidate free, fed the reference's inputs, and with the reference's choices replayed."""

    reference: Recording
    candidate: Recording
    floor: Floor
    fed: Recording | None = None
    replayed: Recording | None = None
    common_only: bool = False


def compare_recordings(sides: Sides) -> Report:
    """Walk the reference. Raises InputError where the sides are of different prompts."""
    remark = check_prompts(sides.reference, sides.candidate)
    sides = replace(
        sides,
        reference=whole_prompt(sides.reference),
        candidate=whole_prompt(sides.candidate),
        fed=None if sides.fed is None else whole_prompt(sides.fed),
        replayed=None if sides.replayed is None else whole_prompt(sides.replayed),
    )
    walk = _Walk(sides, sides.candidate)
    free = nodes = walk.nodes()
    replayed = None if sides.replayed is None else _Walk(sides, sides.replayed, replays=True)
    if replayed is not None:
        nodes = _filled(free, replayed.nodes())
    keys = {entry.key for entry in sides.reference.entries}
    extra = tuple(entry.key for entry in sides.candidate.entries if entry.key not in keys)
    known = sides.candidate.by_key()
    missing = tuple(entry.key for entry in sides.reference.entries if entry.key not in known)
    first = next((node for node in nodes if node.verdict == "deviates"), None)
    unchecked = [node for node in nodes if node.verdict == "not checked"]
    if sides.common_only:
        unchecked = [node for node in unchecked if node.tensor not in missing or _is_needed(node)]
    incomplete = not nodes or bool(unchecked) or bool(remark) or (bool(extra) and not sides.common_only)
    verdict: Verdict = "deviates" if first is not None else "incomplete" if incomplete else "equal"
    return Report(
        verdict=verdict,
        first=None if first is None else (walk if first in free or replayed is None else replayed).explained(first),
        nodes=nodes,
        decisions=tuple(walk.decisions),
        logits=walk.logits,
        replayed_logits=None if replayed is None else replayed.logits,
        missing_reference=extra,
        missing_candidate=missing,
        floor=sides.floor.source,
        remarks=(remark,) if remark else (),
    )


def _is_needed(node: WalkNode) -> bool:
    """What a comparison of common tensors may not do without: every layer's output and the end."""
    return node.operator in ("output", "logits")


def _filled(nodes: tuple[WalkNode, ...], replayed: tuple[WalkNode, ...]) -> tuple[WalkNode, ...]:
    """Nodes that a flipped choice, or a token that followed from it, kept from being checked, taken from the run that
    replays the choices."""
    other = {node.tensor: node for node in replayed}
    return tuple(
        replace(other[node.tensor], message=f"with choices replayed {other[node.tensor].message}".strip())
        if node.kind in ("tie before", "other tokens") and node.tensor in other
        else node
        for node in nodes
    )


class _Walk:
    """One candidate along the reference's order; one that `replays` its choices goes on from those, not its own."""

    def __init__(self, sides: Sides, candidate: Recording, *, replays: bool = False) -> None:
        self.sides, self.candidate, self.replays = sides, candidate, replays
        self.known = candidate.by_key()
        self.own = sides.reference.by_key()
        self.fed = {} if sides.fed is None else sides.fed.by_key()
        self.eps = rounding_of(sides.reference, candidate)
        layers = [entry.layer for entry in sides.reference.entries if entry.layer is not None]
        self.num_layers = 1 + max(layers, default=0)
        self.decisions: list[Decision] = []
        self.logits: LogitReport | None = None
        self.taint, self.before = Taint(), (0.0, "")
        self.apart = self._first_other_token()

    def _first_other_token(self) -> int | None:
        """The first step whose own tokens differ, because an earlier one chose another; None where all are the same."""
        one, two = self.sides.reference.generated_ids, self.candidate.generated_ids
        if one is None or two is None:
            return None
        at = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), None)
        if at is None:
            return None
        steps = sorted({entry.step for entry in self.sides.reference.entries})
        return steps[-1] - (len(one) - 1) + at + 1 if steps else None

    def nodes(self) -> tuple[WalkNode, ...]:
        step, nodes = 0, []
        for entry in self.sides.reference.entries:
            if entry.step != step:
                step = entry.step
                self.taint = Taint(all_steps=self.taint.any)  # the cache carries what came before
                self.before = (0.0, "")
            self.taint.enter(entry.layer)
            nodes.append(self._with_rank(self._node(entry), entry))
        return tuple(nodes)

    def _node(self, entry: Entry) -> WalkNode:
        allowed = self.sides.floor.allowance(entry.key, entry.layer, self.num_layers, self.eps)
        place = (entry.key, entry.layer, entry.operator, entry.step)
        blank = WalkNode(*place, "not checked", None, None, None, None, allowed.limit)
        other = self.known.get(entry.key)
        if other is None:
            return replace(blank, kind="missing", message="not in the candidate")
        if self.apart is not None and entry.step >= self.apart:
            return replace(blank, kind="other tokens", message="the runs had generated different tokens before")
        wanted, found = self.sides.reference.tensor(entry), self.candidate.tensor(other)
        if wanted is None or found is None:
            if ranks_differ(self.candidate.held.get(entry.key, ())):
                return replace(blank, message="ranks that ought to agree do not, and a tensor was not kept")
            return _by_statistics(blank, entry.statistics, other.statistics)
        found = worst_of_ranks(self.candidate, entry.key, found, wanted, allowed)
        wanted, found, note = like_reference(entry, wanted, other, found)
        if entry.key in self.candidate.facts.get(RANKS_DIFFER, ()):
            return replace(blank, verdict="deviates", message="the ranks hold different numbers; their mean is shown")
        if not wanted.is_floating_point():
            return self._choice(blank, entry, found, wanted)
        return self._numbers(replace(blank, message=note), entry, found, wanted, allowed)

    def _with_rank(self, node: WalkNode, entry: Entry) -> WalkNode:
        """A deviation that some ranks have and others have not, with the rank that is farthest off."""
        wanted = self.sides.reference.tensor(entry) if node.verdict == "deviates" and self.candidate.held else None
        if wanted is None:
            return node
        allowed = self.sides.floor.allowance(entry.key, entry.layer, self.num_layers, self.eps)
        rank, message = rank_at_fault(self.candidate, entry.key, wanted, allowed)
        return node if rank is None else replace(node, rank=rank, message=f"{message}; {node.message}".rstrip("; "))

    def _choice(self, blank: WalkNode, entry: Entry, found: Tensor, wanted: Tensor) -> WalkNode:
        """Whole numbers: choices of a router or an indexer, or something that must be the same."""
        if torch.equal(found, wanted):
            return replace(blank, verdict="same", error=0.0, added_error=0.0, inherited_error=0.0)
        if entry.operator in SCORES_OF and found.shape[:-1] == wanted.shape[:-1]:
            found, wanted = as_many(found, wanted)
        if entry.operator not in SCORES_OF or found.shape != wanted.shape:
            return replace(blank, verdict="deviates", kind="other", message="whole numbers that differ")
        clean = self.taint.clean(len(wanted))
        if not clean.any():
            return replace(blank, kind="tie before", message="an earlier choice was a tie")
        scores, tolerance = self._scores(entry)
        place = (entry.key, entry.layer, entry.step)
        decision = judge_choices(*place, torch.where(_column(clean, found), found, wanted), wanted, scores, tolerance)
        self.decisions.append(decision)
        if not self.replays:
            self.taint.now |= set(decision.flipped)
        message = f"{decision.flips} of {decision.tokens} tokens choose others: {decision.exact_ties} exact ties, "
        message += f"{decision.near_ties} near ties, {decision.faults} faults, {decision.unknown} unknown"
        position = None if decision.position is None else entry.start + decision.position
        if decision.faults:
            return replace(blank, verdict="deviates", kind="decision", position=position, message=message)
        if decision.unknown:
            return replace(blank, kind="decision", position=position, message=f"{message}: no scores beside them")
        kind = "tie" if decision.flips else "order"
        return replace(blank, verdict="within tolerance", kind=kind, position=position, message=message)

    def _scores(self, entry: Entry) -> tuple[Tensor | None, float]:
        prefix = entry.name.removesuffix(entry.operator)
        for point in SCORES_OF[entry.operator]:
            scores = self.own.get(step_key(prefix + point, entry.step))
            if scores is not None and (tensor := self.sides.reference.tensor(scores)) is not None:
                allowed = self.sides.floor.allowance(scores.key, scores.layer, self.num_layers, self.eps)
                return (tensor if scores.kept == "whole" else None), allowed.limit
        return None, 0.0

    def _numbers(self, blank: WalkNode, entry: Entry, found: Tensor, wanted: Tensor, allowed: Allowance) -> WalkNode:
        if entry.operator == "ffn.topk_weights":
            found, wanted = self._weights(entry, found, wanted)
        if entry.operator == "logits":  # of all rows, those too that a choice before them has moved
            self.logits = self.logits or compare_logits(found, wanted, entry.start, allowed.limit)
        rows = None
        if self.taint.any:
            if not _by_token(entry, wanted):
                return replace(blank, kind="tie before", message="a choice before it was a tie")
            rows = self.taint.clean(len(wanted)).nonzero().flatten()
            if not len(rows):
                return replace(blank, kind="tie before", message="a choice before it was a tie, for all tokens")
            if found.shape == wanted.shape:
                found, wanted = found[rows], wanted[rows]
        result = difference(found, wanted)
        if result.kind in ("constant", "empty"):
            same = torch.equal(found, wanted) and entry.operator != "logits"
            if result.kind == "empty" or same or entry.operator == "logits":
                return replace(blank, verdict="same" if same else "not checked", kind="" if same else result.kind)
            verdict: NodeVerdict = (
                "within tolerance" if torch.allclose(found, wanted, rtol=allowed.limit) else "deviates"
            )
            return replace(blank, verdict=verdict, kind="constant", message="the reference is one number throughout")
        error = allowed.error_of(result)
        beyond = result.kind in ("shape", "not-finite", "stuck") or not error <= allowed.limit
        verdict = "same" if result.kind == "equal" else "deviates" if beyond else "within tolerance"
        row = result.position if rows is None or result.position is None else int(rows[result.position])
        message = result.message or blank.message
        node = replace(
            blank,
            verdict=verdict,
            error=None if error != error else error,
            position=entry.start + row if row is not None and _by_token(entry, wanted) else None,
            kind=result.kind if result.kind in ("shape", "not-finite", "stuck") else "",
            message=f"{message} ({len(rows)} rows judged)" if rows is not None else message,
        )
        return self._with_added(node, entry, wanted, rows, allowed)

    def _weights(self, entry: Entry, found: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """Weights by expert; tokens that chose other experts are left to the choice itself."""
        key = step_key(entry.name.replace("topk_weights", "topk_ids"), entry.step)
        if key not in self.own or key not in self.known or found.shape != wanted.shape:
            return found, wanted
        one, two = self.sides.reference.tensor(self.own[key]), self.candidate.tensor(self.known[key])
        if one is None or two is None or one.shape != wanted.shape or two.shape != wanted.shape:
            return found, wanted
        same = (one.sort(dim=-1).values == two.sort(dim=-1).values).all(dim=-1, keepdim=True)
        mine = weights_by_option(wanted, one)
        return torch.where(same, weights_by_option(found, two).to(mine.dtype), mine), mine

    def _with_added(
        self, node: WalkNode, entry: Entry, wanted: Tensor, rows: Tensor | None, allowed: Allowance
    ) -> WalkNode:
        """Tell what the step adds from what it inherits."""
        if node.error is None:
            return node
        fed = self.fed.get(entry.key)
        tensor = None if fed is None or self.sides.fed is None else self.sides.fed.tensor(fed)
        if tensor is not None and fed is not None and entry.operator != "ffn.topk_weights":
            _, tensor, _ = like_reference(entry, wanted, fed, tensor)
            added = allowed.error_of(difference(tensor if rows is None else tensor[rows], wanted))
            if added == added:
                inherited = max(0.0, node.error**2 - added**2) ** 0.5
                verdict: NodeVerdict = "deviates" if added > allowed.limit else node.verdict
                return replace(
                    node, verdict=verdict, added_error=added, added_how="measured", inherited_error=inherited
                )
        error, key = self.before
        floor = self.sides.floor.worst
        growth = floor[entry.key] / floor[key] if floor.get(key) and entry.key in floor else 1.0
        inherited = min(node.error, error * growth)
        if entry.operator in FED_POINTS:
            self.before = (node.error, entry.key)
        return replace(node, added_error=node.error - inherited, added_how="estimated", inherited_error=inherited)

    def explained(self, node: WalkNode) -> WalkNode:
        """The node with what kind of mistake it looks like, and another tensor that it may be instead."""
        entry, other = self.own[node.tensor], self.known[node.tensor]
        wanted, found = self.sides.reference.tensor(entry), self.candidate.tensor(other)
        if node.rank is not None:
            found = self.candidate.alone[node.rank](node.tensor)
        if wanted is None or found is None or not wanted.is_floating_point():
            return node
        wanted, found, _ = like_reference(entry, wanted, other, found)
        if entry.operator == "ffn.topk_weights":
            found, wanted = self._weights(entry, found, wanted)
        others = self._others(entry, wanted)
        guess = guess_kind(entry.operator, found, wanted, others, node.tolerance, self._inputs(entry))
        instead = meant_instead(found, entry.name, others) if found.shape == wanted.shape else None
        why = f"{guess.why}; it is what the reference calls {instead}" if instead else guess.why
        return replace(node, kind=guess.kind, message=f"{node.message}; {why}".lstrip("; "))

    def _inputs(self, entry: Entry) -> set[str]:
        """What came before in this layer and step; before what is outside the layers, in the last one."""
        layer = self.num_layers - 1 if entry.layer is None else entry.layer
        return {
            other.name
            for other in self.sides.reference.entries
            if (other.layer, other.step) == (layer, entry.step) and other.order < entry.order
        }

    def _others(self, entry: Entry, wanted: Tensor) -> dict[str, Tensor]:
        """The reference's tensors of the same shape: all of this layer and its neighbours in this step."""
        layer = self.num_layers if entry.layer is None else entry.layer
        near = {None, layer - 1, layer, layer + 1}
        alike = (
            other
            for other in self.sides.reference.entries
            if (other.step, other.shape, other.kept) == (entry.step, tuple(wanted.shape), "whole")
            and other.layer in near
            and other.key != entry.key
        )
        loaded = {other.name: self.sides.reference.load(other.key) for other in alike}
        return {name: tensor for name, tensor in loaded.items() if tensor.is_floating_point()}


def _column(rows: Tensor, like: Tensor) -> Tensor:
    return rows.reshape(-1, *(1,) * (like.dim() - 1))


def _by_token(entry: Entry, tensor: Tensor) -> bool:
    """Whether the first axis is the step's tokens."""
    return tensor.dim() > 1 and len(entry.shape) > 1 and entry.shape[0] == entry.length


def _by_statistics(blank: WalkNode, one: Statistics | None, two: Statistics | None) -> WalkNode:
    """Where a side kept no tensor: equal hashes are equal tensors, other sizes deviate, the rest stays open."""
    if one is None or two is None:
        return replace(blank, message="nothing was kept of it")
    if one.sha256 == two.sha256:
        return replace(blank, verdict="same", error=0.0, message="by its hash")
    if (two.num_nan or two.num_inf) and not (one.num_nan or one.num_inf):
        return replace(blank, verdict="deviates", kind="NaN origin", message="the candidate is not finite")
    for name in ("rms", "absmax"):
        mine, other = getattr(one, name), getattr(two, name)
        if mine is not None and other is not None and abs(mine - other) > 4 * blank.tolerance * abs(mine):
            message = f"{name} {other:.6g}, reference {mine:.6g}"
            return replace(
                blank, verdict="deviates", kind="scale", error=abs(mine - other) / abs(mine or 1.0), message=message
            )
    return replace(blank, message="statistics agree, but a tensor was not kept")


def errors_at_the_end(report: Report) -> Mapping[str, float | None]:
    """The three errors of the logits: free, with choices replayed, and what the choices themselves make of it."""
    free = None if report.logits is None else report.logits.error
    replayed = None if report.replayed_logits is None else report.replayed_logits.error
    choices = None if free is None or replayed is None else max(0.0, free**2 - replayed**2) ** 0.5
    return {"free": free, "replayed": replayed, "choices": choices}
