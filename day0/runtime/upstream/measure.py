"""What a definition can do, tried out on a few tokens: is it causal, what is its cache good for, what does it take.

Definitions differ in what they make of a cache: some forget their state when several tokens follow it, some keep
none. None of that is declared, so it is measured when the model is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import torch

from day0.errors import CannotSay
from day0.runtime.upstream.decoder import UpstreamDecoder
from day0.runtime.upstream.definition import told_as
from day0.runtime.upstream.sessions import CacheCost, CacheUse, Session, cache_bytes

LENGTH, FIRST = 9, 5
"""Tokens of the trial, and of its first portion."""

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 1e-2}
"""Relative error of a token's logits between two right ways. In float32 rounding stays near 1e-6, and a forgotten
state of a tiny random model shows from 5e-4 on."""


@torch.inference_mode()
def try_out(decoder: UpstreamDecoder, where: str) -> None:
    """Set `decoder.cache_use` to the cheapest way that is right, and `decoder.cost` to what its cache takes.

    Raises CannotSay for a definition that does not run here, or whose tokens see those after them.
    """
    _check_rotation(decoder, where)
    vocab, limit = decoder.profile.vocab_size, TOLERANCE[decoder.embed.weight.dtype]
    ids = [(7 * index + 3) % vocab for index in range(LENGTH)]
    with told_as("transformers does not run the model here", where):
        decoder.cache_use = CacheUse.NEVER
        whole = _logits(decoder, ids, (LENGTH,))
        if not whole.isfinite().all():
            return  # the first checked forward says so
        _check_causal(decoder, ids, whole, limit, where)
        decoder.cache_use = CacheUse.CHUNKS
        in_steps, in_portions = (FIRST, *[1] * (LENGTH - FIRST)), (FIRST, LENGTH - FIRST)
        right_in_steps = _agree(_attempt(decoder, ids, in_steps), whole, limit)
        right_in_portions = right_in_steps and _agree(_attempt(decoder, ids, in_portions), whole, limit)
        if right_in_steps:
            decoder.cost = _cost(decoder, ids)
    # Rounding in a narrow dtype hides what a forgotten state would change.
    hidden = decoder.cost.per_sequence > 0 and decoder.embed.weight.dtype is not torch.float32
    if not right_in_steps:
        decoder.cache_use = CacheUse.NEVER
    elif not right_in_portions or hidden:
        decoder.cache_use = CacheUse.STEPS


def _check_rotation(decoder: UpstreamDecoder, where: str) -> None:
    if any("dynamic" in str(getattr(module, "rope_type", "")) for module in decoder.upstream.modules()):
        raise CannotSay(
            "transformers' dynamic rotary frequencies depend on the longest sequence that ran before: "
            "an answer would change with its neighbours",
            where=where,
        )


def _logits(decoder: UpstreamDecoder, ids: Sequence[int], portions: Sequence[int]) -> torch.Tensor:
    session, rows = Session(), []
    for length in portions:
        done = len(session.token_ids)
        session.token_ids += ids[done : done + length]
        logits = decoder.advance(session, length)
        assert logits is not None
        rows.append(logits)
    return torch.cat(rows)


def _attempt(decoder: UpstreamDecoder, ids: Sequence[int], portions: Sequence[int]) -> torch.Tensor | None:
    """Logits in portions through the cache; None where the definition does not get through, or keeps no cache."""
    try:
        return _logits(decoder, ids, portions)
    except (RuntimeError, ValueError, TypeError, AttributeError, LookupError, AssertionError):
        return None


def _check_causal(decoder: UpstreamDecoder, ids: Sequence[int], whole: torch.Tensor, limit: float, where: str) -> None:
    if not _agree(_logits(decoder, ids[:FIRST], (FIRST,)), whole[:FIRST], limit):
        raise CannotSay(
            "a token's logits change with the tokens after it: this is no model that generates from left to right",
            where=where,
        )


def _agree(found: torch.Tensor | None, wanted: torch.Tensor, limit: float) -> bool:
    if found is None or found.shape != wanted.shape:
        return False
    error = (found - wanted).norm(dim=-1) / wanted.norm(dim=-1)
    return bool(error.max() <= limit)


def _cost(decoder: UpstreamDecoder, ids: Sequence[int]) -> CacheCost:
    """From the bytes behind a short and a longer sequence; layers with a window grow less than this later on."""
    sizes = []
    for length in (FIRST, LENGTH):
        session = Session(list(ids[:length]))
        decoder.advance(session, 1)
        sizes.append(cache_bytes(session.cache))
    per_token = ceil((sizes[1] - sizes[0]) / (LENGTH - FIRST))
    return CacheCost(max(0, per_token), max(0, sizes[0] - FIRST * per_token))
