"""A road: one way for prompts to get through an engine, by everything that must not change an answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from day0.checklist.probe_paths import sibling
from day0.numerics.covering import Settings
from day0.numerics.joining import GROWING
from day0.plan.settings import EngineSettings
from day0.runtime.batch import Request, SamplingParams
from day0.runtime.cache.pages import pages_for
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.scheduler import Chunk
from day0.runtime.trace import Trace

Prompt = tuple[int, ...]
Group = Mapping[int, Prompt]
"""Prompts that are under way together, by number."""
WHOLE = 0
"""As a chunk: a prompt at once."""


@dataclass(frozen=True, slots=True)
class Road:
    """Settings of one road; the defaults are those of the reference: alone, whole, cold, in memory nobody had.

    `batch` prompts are under way at a time, the next group after they ended. `prefix` "warm" asks everything twice,
    "branch" asks first what begins alike and goes on otherwise. `room` "tight" lets a neighbour grow into the pages of
    the last comer, who starts over. `memory` "reused" had requests in it that were aborted, and is poisoned as it is
    freed. `page` 0 is the page size as the engine has it; `ranks` names a layout of two processes.
    """

    batch: int = 1
    order: str = "listed"
    chunk: int = WHOLE
    page: int = 0
    prefix: str = "cold"
    room: str = "ample"
    memory: str = "fresh"
    weights: str = "resident"
    ranks: str = "alone"

    @classmethod
    def of(cls, settings: Settings) -> Road:
        return cls(**settings)  # type: ignore[arg-type]


@dataclass(slots=True)
class Answered:
    """What a road gave for one prompt: tokens, and the logits [vocab] before each of them.

    `traced` has the rows of traced tensors by the position of their token, where they were asked for.
    """

    token_ids: list[int] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)
    traced: dict[str, dict[int, Tensor]] = field(default_factory=dict)


@dataclass(slots=True)
class Travelled:
    """A road's answers in the order of the prompts, and what happened on it."""

    answers: list[Answered]
    preemptions: int
    reused_tokens: int

    def lacks(self, road: Road) -> str:
        """What the road promises and did not happen; empty where all of it did."""
        if road.room == "tight" and self.preemptions == 0:
            return "nobody was preempted"
        if road.prefix != "cold" and road.room == "ample" and self.reused_tokens == 0:
            return "nothing of a prefix was found"
        return ""


def travel(
    base: Engine, road: Road, prompts: Sequence[Prompt], max_tokens: int, traced: int | None = None
) -> Travelled:
    """Send prompts along a road, on a new engine around the weights of `base`; `traced` is the prompt to trace."""
    order = list(range(len(prompts)))[:: -1 if road.order == "reversed" else 1]
    groups = [
        {index: prompts[index] for index in order[at : at + road.batch]} for at in range(0, len(order), road.batch)
    ]
    answers = {index: Answered() for index in range(len(prompts))}
    # A room that is to be tight is made to measure; else all groups come after one another in the same.
    parts = [[group] for group in groups] if road.room == "tight" else [groups]
    happened = [_travel_part(base, road, part, max_tokens, answers, traced) for part in parts]
    preemptions, reused = (sum(counts) for counts in zip(*happened, strict=True))
    return Travelled(list(answers.values()), preemptions, reused)


def _travel_part(
    base: Engine,
    road: Road,
    groups: Sequence[Group],
    max_tokens: int,
    answers: Mapping[int, Answered],
    traced: int | None,
) -> tuple[int, int]:
    """Answer groups one after another on one engine; gives preemptions and reused tokens."""
    prompts = [prompt for group in groups for prompt in group.values()]
    engine = _engine(base, road, prompts, max_tokens)
    try:
        if road.memory == "reused":
            _abandon(engine, road, prompts)
        if road.prefix != "cold":
            _prepare(engine, road, prompts)
        before = engine.stats()
        with _watched(engine, answers, traced):
            for group in groups:
                _answer(engine, road, group, max_tokens)
        after = engine.stats()
    finally:
        engine.close()
    return after.preemptions - before.preemptions, after.reused_tokens - before.reused_tokens


def _engine(base: Engine, road: Road, prompts: Sequence[Prompt], max_tokens: int) -> Engine:
    longest = max(map(len, prompts)) + max_tokens
    # What is to be found again must not be pushed out by the others before it is looked for.
    room = longest if road.prefix == "cold" or road.room == "tight" else sum(map(len, prompts)) + longest
    settings = replace(
        base.settings,
        page_size=road.page or base.settings.page_size,
        max_num_batched_tokens=road.chunk or max(base.settings.max_num_batched_tokens, road.batch * longest),
        max_model_len=min(room, base.profile.max_position or room),
        max_num_seqs=road.batch + 1,
        prefix_caching=road.prefix != "cold",
        debug=road.memory == "reused",
        watermark=0.0,
        kv_cache_bytes=None,
    )
    engine = sibling(base, settings)
    if road.room == "ample":
        return engine
    size = engine.settings.page_size
    needed = max(pages_for(longest, size), 1 + sum(pages_for(len(prompt), size) for prompt in prompts))
    per_page = engine.memory.kv_bytes // engine.memory.num_pages
    engine.close()
    return sibling(base, replace(settings, kv_cache_bytes=needed * per_page, max_model_len=longest))


def _filler(engine: Engine, group: Sequence[Prompt]) -> Request:
    """A neighbour that fills every page the group leaves, and needs one more after its first token."""
    size = engine.settings.page_size
    left = engine.cache.pages.num_pages - sum(pages_for(len(prompt), size) for prompt in group)
    length = min(left * size, engine.max_model_len - 3)
    ids = tuple((7 * place + 3) % engine.profile.vocab_size for place in range(length))
    return Request("filler", ids, SamplingParams(max_tokens=3, ignore_eos=True))


def _answer(engine: Engine, road: Road, group: Group, max_tokens: int) -> None:
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    if road.room == "tight":
        engine.add(_filler(engine, list(group.values())))
    for index, prompt in group.items():
        engine.add(Request(str(index), prompt, params))
    while engine.has_work():
        engine.step()


def _abandon(engine: Engine, road: Road, prompts: Sequence[Prompt]) -> None:
    """Fill the cache with others, and abort them: some in the middle of their prompts, some while they are answered."""
    longest = max(prompts, key=len)[::-1]
    params = SamplingParams(max_tokens=max(1, engine.max_model_len - len(longest)), ignore_eos=True)
    for steps in (1, 3):
        names = [f"abandoned-{steps}-{number}" for number in range(road.batch + 1)]
        for name in names:
            engine.add(Request(name, longest, params))
        for _ in range(steps):
            engine.step()
        for name in names:
            engine.abort(name)


def _prepare(engine: Engine, road: Road, prompts: Sequence[Prompt]) -> None:
    """Let the cache know the prompts, or prompts that begin like them."""
    params = SamplingParams(max_tokens=1, ignore_eos=True)
    for index, prompt in enumerate(prompts):
        known = prompt
        if road.prefix == "branch":
            kept = len(prompt) * 3 // 4
            known = prompt[:kept] + prompt[kept:][::-1] + prompt[:1]
        engine.generate([Request(f"known-{index}", known[: engine.max_model_len - 1], params)])


@contextmanager
def _watched(engine: Engine, answers: Mapping[int, Answered], traced: int | None) -> Iterator[None]:
    """Note the logits of every token as the runner gives them, and the traced rows of one prompt."""
    sound = engine.runner.run

    def run(chunks: list[Chunk], *, every_row: bool = False, trace: Trace | None = None) -> Tensor:
        own = trace if traced is None else Trace()
        logits = sound(chunks, every_row=every_row, trace=own)
        ending = (chunk for chunk in chunks if chunk.reaches_end)
        for chunk, row in zip(ending, logits, strict=True):
            answer = answers.get(_number(chunk))
            if answer is not None:
                answer.logits.append(row.float().cpu())
                answer.token_ids.append(int(row.argmax()))
        if own is not None and traced is not None:
            _keep_rows(own, chunks, traced, answers[traced])
        return logits

    engine.runner.run = run  # type: ignore[method-assign]
    try:
        yield
    finally:
        del engine.runner.run


def _number(chunk: Chunk) -> int:
    """Of the prompt, -1 for a neighbour that is none."""
    return int(chunk.sequence.id) if chunk.sequence.id.isdigit() else -1


def _keep_rows(trace: Trace, chunks: Sequence[Chunk], traced: int, answer: Answered) -> None:
    """The rows of a step that are the traced prompt's; a point whose rows are not tokens is passed over."""
    first = 0
    total = sum(chunk.length for chunk in chunks)
    for chunk in chunks:
        if _number(chunk) == traced:
            start = chunk.sequence.computed
            for name, tensor in trace.tensors.items():
                whole = tensor.dim() > 1 and len(tensor) == total and tensor.is_floating_point()
                if whole and name.split(".", 2)[-1] not in GROWING:
                    rows = answer.traced.setdefault(name, {})
                    rows |= {start + place: tensor[first + place] for place in range(chunk.length)}
        first += chunk.length


def two_ranks(settings: EngineSettings, ranks: str) -> EngineSettings:
    """The settings of a layout by its name: tp, pp, or ep (experts dealt whole over two slices)."""
    tp, ep, pp = {"alone": (1, 1, 1), "tp": (2, 1, 1), "pp": (1, 1, 2), "ep": (2, 2, 1)}[ranks]
    return replace(settings, tp=tp, ep=ep, pp=pp, dp=1)


def traced_rows(answer: Answered, wanted: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Traced rows of an answer and those of a whole forward [tokens, ...] at the same positions, by name."""
    mine: dict[str, Tensor] = {}
    theirs: dict[str, Tensor] = {}
    for name, tensor in wanted.items():
        rows = answer.traced.get(name, {})
        places = sorted(place for place in rows if place < len(tensor))
        if places:
            mine[name], theirs[name] = torch.stack([rows[place] for place in places]), tensor[places]
    return mine, theirs
