"""One prompt traced over several steps: its prefill, whole or in chunks, and the greedy tokens after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from day0.runtime.batch import ImageSpan, Request
from day0.runtime.engine.engine import Engine, RequestRefused
from day0.runtime.engine.scheduler import Chunk
from day0.runtime.engine.sequence import Sequence as Running
from day0.runtime.trace import Trace


@dataclass(frozen=True, slots=True)
class TracedStep:
    """One forward: `start` tokens came before its own; `next_id` is the greedy token after its last one.

    `ends` says whether no prompt tokens were left, so that `next_id` is one that was generated; `last` that no step
    follows.
    """

    index: int
    start: int
    token_ids: tuple[int, ...]
    trace: Trace
    next_id: int
    ends: bool
    last: bool


def traced_steps(
    engine: Engine,
    token_ids: Sequence[int],
    make_trace: Callable[[int, int, int], Trace],
    *,
    new_tokens: int = 0,
    chunk: int | None = None,
    images: tuple[ImageSpan, ...] = (),
) -> Iterator[TracedStep]:
    """Run the prompt in chunks (None: at once), then `new_tokens` - 1 decode steps; each gives logits for one token.

    `make_trace(index, start, length)` gives the trace of each step. Raises RequestRefused where the prompt cannot run
    or the cache has no room. Where logits are not finite there is no token to go on with, and the steps end: their
    trace is what shows where that came from.
    """
    total = check_traced(engine, token_ids, new_tokens)
    sequence = Running.of(Request("trace", tuple(token_ids), images=images), engine.cache.pages.page_size)
    sequence.lease = engine.cache.open()
    engine.cache.grow(sequence.lease, total)
    index = 0
    try:
        while sequence.computed < total:
            length = min(chunk or len(token_ids), sequence.num_pending)
            trace = make_trace(index, sequence.computed, length)
            logits = engine.runner.run([Chunk(sequence, length)], every_row=True, trace=trace)
            own = tuple(sequence.token_ids[sequence.computed : sequence.computed + length])
            next_id, start = int(logits[-1].argmax()), sequence.computed
            sequence.computed += length
            ends = sequence.num_pending == 0
            last = ends and (sequence.computed >= total or not bool(torch.isfinite(logits[-1]).all()))
            yield TracedStep(index, start, own, trace, next_id, ends, last)
            if last:
                return
            index += 1
            if ends:
                sequence.token_ids.append(next_id)
    finally:
        engine.cache.close(sequence.lease)


def check_traced(engine: Engine, token_ids: Sequence[int], new_tokens: int) -> int:
    """How many tokens a trace computes; raises RequestRefused where they cannot run, or the cache has no room."""
    total = len(token_ids) + max(0, new_tokens - 1)
    if total > engine.max_model_len:
        raise RequestRefused(f"{total} tokens, the limit is {engine.max_model_len}", where="prompt")
    if not engine.cache.can_open(total):
        raise RequestRefused(f"no room in the cache for {total} tokens beside what is running")
    if not token_ids or min(token_ids) < 0 or max(token_ids) >= engine.profile.vocab_size:
        raise RequestRefused(f"needs token ids in 0..{engine.profile.vocab_size - 1}", where="prompt")
    return total
