"""How a checkpoint lays out what the specs describe: projections joined into one tensor, experts stacked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import gcd

from day0.profile.draft import Draft


@dataclass(frozen=True, slots=True)
class Storage:
    """Where a family's files differ from one tensor per projection and expert.

    `joined` names tensors that hold several of ours one after another along their output axis, by the path without
    the leaf ("ffn.experts.gate_up": the paths of gate and up); those of `by_turns` go through the pieces that
    they are cut into (key heads, rows): that of each part, then the next. With `stacked_experts` all experts of a layer
    are one tensor, expert first; with `input_first` such matrices are [expert, in, out]. `unit_axis` lists paths that
    are stored with a first axis of 1, `float32` those that are float32 whatever the model's dtype.
    """

    joined: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by_turns: tuple[str, ...] = ()
    stacked_experts: bool = False
    input_first: bool = False
    unit_axis: tuple[str, ...] = ()
    float32: tuple[str, ...] = ()


def as_stored(drafts: Iterable[Draft], storage: Storage) -> Iterator[Draft]:
    """The drafts of a layer as the checkpoint holds them."""
    for draft in _join(drafts, storage):
        if storage.stacked_experts and draft.experts:
            yield _stack(draft, storage)
        elif draft.path in storage.unit_axis:
            yield replace(draft, shape=(1, *draft.shape))
        elif draft.path in storage.float32:
            yield replace(draft, dtype="F32", keep_float32=True)
        else:
            yield draft


def _join(drafts: Iterable[Draft], storage: Storage) -> Iterator[Draft]:
    """Put parts together; a joined tensor comes where its last part was, and only where all parts are there."""
    joined = storage.joined
    whole_of = {part: whole for whole, parts in joined.items() for part in parts}
    waiting: dict[str, dict[str, Draft]] = {}
    for draft in drafts:
        stem, _, leaf = draft.path.rpartition(".")
        whole = whole_of.get(stem)
        if whole is None:
            yield draft
            continue
        parts = waiting.setdefault(f"{whole}.{leaf}", {})
        parts[stem] = draft
        if len(parts) == len(joined[whole]):
            drafts_of = {part: parts[part] for part in joined[whole]}
            yield _joined(f"{whole}.{leaf}", drafts_of, in_turn=whole in storage.by_turns)
            del waiting[f"{whole}.{leaf}"]
    for parts in waiting.values():
        yield from parts.values()


def _joined(path: str, drafts: Mapping[str, Draft], *, in_turn: bool) -> Draft:
    """One tensor of all rows. It is cut inside each part, so between as many pieces as every part has."""
    parts = list(drafts.values())
    first, units = parts[0], gcd(*(part.shard_units for part in parts))
    return replace(
        first,
        path=path,
        shape=(sum(part.shape[0] for part in parts), *first.shape[1:]),
        shard_units=units,
        parameters=sum(part.num_parameters for part in parts),
        parts=tuple((stem, part.shape[0]) for stem, part in drafts.items()),
        by_turns=units if in_turn else 0,
    )


def _stack(draft: Draft, storage: Storage) -> Draft:
    shape, axis, leaf = draft.shape, draft.shard_axis, draft.path.rpartition(".")[2]
    turned = storage.input_first and leaf == "weight"
    if turned:
        shape = shape[::-1]
        axis = None if axis is None else len(shape) - 1 - axis
    return replace(
        draft,
        shape=(draft.experts, *shape),
        shard_axis=None if axis is None else axis + 1,
        parameters=draft.num_parameters * draft.experts,
        experts=0,
        stacked=draft.experts,
        input_first=turned,
    )
