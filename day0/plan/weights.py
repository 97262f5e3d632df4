"""Bytes of weights on a rank, from the tensors a profile must have and the way a layout cuts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from day0.plan.layout import VOCABULARY_MULTIPLE
from day0.profile.profile import ArchitectureProfile
from day0.profile.tensors import TensorSpec, expected_tensors

CutKind = Literal["attention", "dense", "embed", "head", "experts", "vision"]

CUT_KINDS: Mapping[str, CutKind] = {
    "attention": "attention",
    "indexer": "attention",
    "linear_mixer": "attention",
    "dense_mlp": "dense",
    "shared_experts": "dense",
    "latent_moe_proj": "dense",
    "embed": "embed",
    "lm_head": "head",
    "routed_experts": "experts",
    "vision": "vision",
    "audio": "vision",
}
"""Which cut a parameter group follows; groups not named here are held whole by every rank."""

_FIRST_STAGE = ("embed", "vision", "audio")


@dataclass(frozen=True, slots=True)
class Cuts:
    """In how many pieces a rank's stage holds each part: heads, dense widths, the two vocabulary tables, experts.

    `redundant` experts of a layer are dealt a second time, so that crowded ones are shared out.
    """

    attention: int = 1
    dense: int = 1
    embed: int = 1
    head: int = 1
    ep: int = 1
    expert_tp: int = 1
    vision: int = 1
    redundant: int = 0

    def of(self, kind: CutKind) -> int:
        return {
            "attention": self.attention,
            "dense": self.dense,
            "embed": self.embed,
            "head": self.head,
            "experts": self.expert_tp,
            "vision": self.vision,
        }[kind]


@dataclass(frozen=True, slots=True)
class WeightRow:
    """Stored bytes of alike tensors of one place: cut between `units` pieces by `kind`, whole where `kind` is None.

    `values` are the parameters that the bytes hold, however they are packed.
    """

    kind: CutKind | None
    units: int
    experts: int
    nbytes: int
    values: int = 0

    def on_rank(self, cuts: Cuts) -> int:
        """Bytes one rank holds. A cut finer than the units leaves one unit on each rank (key/value heads); a tower
        whose heads do not divide is held whole."""
        if self.kind is None:
            return self.nbytes
        pieces = cuts.of(self.kind)
        if self.kind == "vision" and self.units % pieces:
            return self.nbytes
        units = self.units
        if self.kind in ("embed", "head") and pieces > 1:
            units = -(-units // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
        held = self.nbytes * -(-units // pieces) // self.units
        if self.experts:
            held = held // self.experts * -(-(self.experts + cuts.redundant) // cuts.ep)
        return held

    def values_on_rank(self, cuts: Cuts) -> int:
        return self.values * self.on_rank(cuts) // self.nbytes

    def copies(self, cuts: Cuts, ranks: int) -> Fraction:
        """How often the bytes exist over `ranks` ranks of a stage; 1 where each piece is on one rank only."""
        return Fraction(ranks * self.on_rank(cuts), self.nbytes)


@dataclass(frozen=True, slots=True)
class RankWeights:
    """Bytes on one rank by how a step touches them: the input table (a few rows), routed experts (the chosen ones),
    the vision tower (images only), and all the rest (always). `expert_values` and `rest_values` are the parameters
    that the experts and the rest hold."""

    embed: int = 0
    experts: int = 0
    vision: int = 0
    rest: int = 0
    expert_values: int = 0
    rest_values: int = 0

    @property
    def total(self) -> int:
        return self.embed + self.experts + self.vision + self.rest

    def __add__(self, other: RankWeights) -> RankWeights:
        return RankWeights(
            self.embed + other.embed,
            self.experts + other.experts,
            self.vision + other.vision,
            self.rest + other.rest,
            self.expert_values + other.expert_values,
            self.rest_values + other.rest_values,
        )


Place = tuple[WeightRow, ...]


@dataclass(frozen=True, slots=True)
class WeightTable:
    """All stored bytes of a model by place: what the first stage starts with, each layer, what the last ends with.

    `tied` is the input table where it is the output head too: the last of several stages needs a second copy.
    `mtp` are the predictors, on the last stage of an engine that speculates with them.
    """

    first: Place
    vision: Place
    layers: tuple[Place, ...]
    last: Place
    tied: Place
    mtp: Place = ()

    @property
    def nbytes(self) -> int:
        places = (self.first, self.vision, *self.layers, self.last)
        return sum(row.nbytes for place in places for row in place)

    def layer_weights(self, cuts: Cuts) -> tuple[RankWeights, ...]:
        """What a rank holds of each layer; alike layers are one object and counted once."""
        known = {
            id(place): place_weights(place, cuts) for place in {id(place): place for place in self.layers}.values()
        }
        return tuple(known[id(place)] for place in self.layers)

    def stage(
        self, layers: range, cuts: Cuts, each: Sequence[RankWeights], *, is_first: bool, is_last: bool
    ) -> RankWeights:
        """What a rank of the stage with `layers` holds, predictors left out; `each` are its `layer_weights`."""
        total = sum(each[layers.start : layers.stop], RankWeights())
        if is_first:
            total += RankWeights(vision=_held(self.vision, cuts))
            # one table for both ends is read whole, as the head
            both = self.tied and is_last
            total += place_weights(self.first, cuts) if both else RankWeights(embed=_held(self.first, cuts))
        if is_last:
            total += place_weights(self.last, cuts)
            if not is_first:
                total += place_weights(self.tied, cuts)
        return total


def weight_table(profile: ArchitectureProfile) -> WeightTable:
    """Group the expected tensors; raises CannotSay where those are unknown."""
    layers: list[list[TensorSpec]] = [[] for _ in profile.layers]
    outside: dict[str, list[TensorSpec]] = {"first": [], "vision": [], "last": [], "mtp": []}
    for spec in expected_tensors(profile):
        if spec.group == "mtp":
            outside["mtp"].append(replace(spec, group=_predictor_group(spec)))
        elif spec.layer is not None:
            layers[spec.layer].append(spec)
        elif spec.group in _FIRST_STAGE:
            outside["first" if spec.group == "embed" else "vision"].append(spec)
        else:
            outside["last"].append(spec)
    first = _rows(outside["first"])
    tied = (
        tuple(WeightRow("head", row.units, 0, row.nbytes, row.values) for row in first)
        if profile.tie_word_embeddings
        else ()
    )
    return WeightTable(
        first=first,
        vision=_rows(outside["vision"], profile.vision.num_heads if profile.vision is not None else 0),
        layers=_alike(_rows(specs) for specs in layers),
        last=_rows(outside["last"]),
        tied=tied,
        mtp=_rows(outside["mtp"]),
    )


def _alike(places: Iterable[Place]) -> tuple[Place, ...]:
    """The places, equal ones being one object."""
    known: dict[Place, Place] = {}
    return tuple(known.setdefault(place, place) for place in places)


def _predictor_group(spec: TensorSpec) -> str:
    """The group whose cut a predictor's tensor follows, by the place of its path; "" for what is held whole."""
    if spec.num_experts:
        return "routed_experts"
    for place, group in ((".mixer.", "attention"), (".ffn.", "dense_mlp"), ("embed.", "embed"), ("lm_head", "lm_head")):
        if place in spec.path:
            return group
    return ""


def place_weights(place: Place, cuts: Cuts) -> RankWeights:
    experts = [row for row in place if row.kind == "experts"]
    rest = [row for row in place if row.kind != "experts"]
    return RankWeights(
        experts=_held(experts, cuts),
        rest=_held(rest, cuts),
        expert_values=sum(row.values_on_rank(cuts) for row in experts),
        rest_values=sum(row.values_on_rank(cuts) for row in rest),
    )


def _held(place: Iterable[WeightRow], cuts: Cuts) -> int:
    return sum(row.on_rank(cuts) for row in place)


def _rows(specs: Iterable[TensorSpec], tower_heads: int = 0) -> Place:
    totals: Counter[tuple[CutKind | None, int, int]] = Counter()
    values: Counter[tuple[CutKind | None, int, int]] = Counter()
    for spec in specs:
        kind = CUT_KINDS.get(spec.group) if spec.shard_axis is not None or spec.num_experts else None
        units = spec.shard_units if spec.shard_axis is not None else 1
        if spec.group in ("vision", "audio") and len(spec.shape) == 2:
            # The profile cuts no tower; engines cut its projections like others, by heads and widths.
            kind, units = "vision", tower_heads or max(spec.shape)
        key = (kind, units if kind else 1, spec.num_experts)
        totals[key] += spec.nbytes
        values[key] += spec.total_parameters
    return tuple(WeightRow(*key, nbytes, values[key]) for key, nbytes in totals.items())
