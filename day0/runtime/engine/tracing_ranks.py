"""One prompt traced on several ranks: each of the first replica's keeps its own tensors, and rank 0 collects them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from day0.runtime.batch import ImageSpan
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.lead import LeadingEngine, Traced
from day0.runtime.engine.tracing import TracedStep, check_traced, traced_steps
from day0.runtime.models.decoder import Decoder
from day0.runtime.parallel.joining import Joined
from day0.runtime.parallel.layout import Layout, Place
from day0.runtime.parallel.traced_shares import TracedShare, traced_share
from day0.runtime.trace import Trace

Tensors = Mapping[str, torch.Tensor]
CUT_CHOICES = "topk_blocks"
"""The only replaced tensor of which a rank has a part; all others that a run may be fed with are whole."""


@dataclass(frozen=True, slots=True)
class SharedTensor:
    """One tensor of one rank: what it is of the whole, and whether an earlier rank has all of it too."""

    name: str
    tensor: torch.Tensor
    rank: int
    share: TracedShare
    copy: bool


def traced_on_ranks(
    engine: LeadingEngine,
    token_ids: Sequence[int],
    replaced: Callable[[int], Tensors],
    *,
    new_tokens: int = 0,
    chunk: int | None = None,
    images: tuple[ImageSpan, ...] = (),
) -> Iterator[tuple[TracedStep, tuple[SharedTensor, ...]]]:
    """`traced_steps` over all ranks; `replaced(index)` gives what a step takes from another run.

    Tensors come stage by stage in execution order, those of a name by rank. Raises what `traced_steps` raises, and
    EnvironmentFault for a rank that died.
    """
    joined, command = engine.world.joined, Traced(engine.number, tuple(token_ids), new_tokens, chunk, images)
    check_traced(engine, command.token_ids, new_tokens)
    with joined.watch.working():
        engine.world.tell(command)
        for step, own in _own_steps(engine, command, lambda index: joined.meeting.tell(replaced(index))):
            found = joined.meeting.collect(own)
            yield step, tuple(_in_order(engine, step, found))
            joined.meeting.tell(step.last)


def take_part(engine: Engine, command: Traced, joined: Joined) -> None:
    """What every other rank does in the meantime; another replica serves the first with its experts."""
    meeting = joined.meeting
    place = Layout.of(engine.settings).place(joined.rank)
    if place.replica > 0:
        last = False
        while not last:
            meeting.tell(None)
            engine.serve_others()
            meeting.collect({})
            last = meeting.tell(None)
        return
    for _, own in _own_steps(engine, command, lambda index: meeting.tell(None)):
        meeting.collect(own)
        meeting.tell(None)


def _own_steps(
    engine: Engine, command: Traced, given: Callable[[int], Tensors]
) -> Iterator[tuple[TracedStep, dict[str, torch.Tensor]]]:
    """Each step of this rank with the tensors that it had; `given` is asked before each."""
    layout = Layout.of(engine.settings)
    assert isinstance(engine.model, Decoder), "transformers' models stay with one rank"
    place = engine.model.ranks.place
    kept: dict[str, torch.Tensor] = {}

    def make(index: int, start: int, length: int) -> Trace:
        kept.clear()
        replaced = {name: _part(engine, layout, place, name, whole, length) for name, whole in given(index).items()}
        return Trace(observe=lambda name, tensor: kept.update({name: tensor.to("cpu", copy=True)}), replaced=replaced)

    steps = traced_steps(
        engine,
        command.token_ids,
        make,
        new_tokens=command.new_tokens,
        chunk=command.chunk,
        images=command.images,
    )
    for step in steps:
        yield step, dict(kept)


def _part(engine: Engine, layout: Layout, place: Place, name: str, whole: torch.Tensor, length: int) -> torch.Tensor:
    if not name.endswith(CUT_CHOICES):
        return whole
    return traced_share(engine.profile.layers, layout, place, name, length).of(whole)


def _in_order(engine: LeadingEngine, step: TracedStep, found: Sequence[Tensors]) -> Iterator[SharedTensor]:
    """Names as the first rank of their stage saved them; of each the ranks that have it, in order."""
    names = dict.fromkeys(name for tensors in found for name in tensors)
    for name in names:
        seen = False
        for rank, tensors in enumerate(found):
            if name not in tensors:
                continue
            tensor, place = tensors[name], engine.layout.place(rank)
            share = traced_share(
                engine.profile.layers, engine.layout, place, name, len(step.token_ids), tuple(tensor.shape)
            )
            whole = share.axis is None and not share.summed
            yield SharedTensor(name, tensor, rank, share, whole and seen)
            seen = seen or whole
