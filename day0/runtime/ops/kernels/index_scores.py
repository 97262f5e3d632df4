"""The lightning indexer in Triton: scores of all entries of the past, and the best of them (arXiv 2512.02556).

A program scores a span of index keys, read through the slots of their sequence, for some new tokens in turn:
sum over heads of weight x relu(q . k) is a product of matrices whose result never leaves the chip.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from day0.runtime.ops.kernels.select import choose_largest

BLOCK_ENTRIES = 128
TOKENS = 32
"""New tokens that a program scores its keys for."""
PROGRAMS = 264
"""Programs wanted at the most, so that each has some blocks and fetches one while it works on another."""
SCORE_ELEMENTS = 1 << 26
"""Float32 scores held at once (256 MiB); of longer prefills the tokens are done in turn."""


@triton.jit
def _score(
    q, weights, cache, slots, context, scores, ready, q_sequence, q_token, q_head, w_sequence, w_token, cache_row,
    slots_row, entries, first, tokens, scale, ratio, span,
    HEADS: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_E: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """scores[n, t, e] of the visible entries, ready[n, t] = how many those are; t counts from token `first`."""
    sequence = tl.program_id(2).to(tl.int64)
    start = tl.program_id(1) * TOKENS
    end = tl.minimum(start + TOKENS, tokens)
    before = tl.load(context + sequence) + first
    if tl.program_id(0) == 0:
        for t in range(start, end):
            tl.store(ready + sequence * tokens + t, (before + t + 1) // ratio)
    heads, channels = tl.arange(0, BLOCK_H), tl.arange(0, BLOCK_D)
    is_head, is_channel = heads < HEADS, channels < DIM
    slots += sequence * slots_row
    q += sequence * q_sequence + first * q_token
    weights += sequence * w_sequence + first * w_token
    low = tl.program_id(0) * span
    for t in range(start, end):
        last = tl.minimum((before + t + 1) // ratio, low + span).to(tl.int32)
        queries = tl.load(
            q + t * q_token + heads[None, :] * q_head + channels[:, None],
            mask=is_head[None, :] & is_channel[:, None],
            other=0.0,
        )
        factors = tl.load(weights + t * w_token + heads, mask=is_head, other=0.0).to(tl.float32) * scale
        numbers = low + tl.arange(0, BLOCK_E)
        rows = tl.load(slots + numbers, mask=numbers < last, other=0)  # a block before its keys, so that none waits
        for _ in tl.range(low, last, BLOCK_E, num_stages=STAGES):
            visible = numbers < last
            keys = tl.load(
                cache + rows[:, None] * cache_row + channels[None, :],
                mask=visible[:, None] & is_channel[None, :],
                other=0.0,
            ).to(queries.dtype)
            rows = tl.load(slots + numbers + BLOCK_E, mask=numbers + BLOCK_E < last, other=0)
            products = tl.dot(keys, queries, input_precision="ieee")
            score = tl.sum(tl.maximum(products, 0.0) * factors[None, :], axis=1)
            tl.store(scores + (sequence * tokens + t) * entries + numbers, score, mask=visible)
            numbers += BLOCK_E


def visible_scores(
    q: torch.Tensor,
    weights: torch.Tensor,
    index_cache: torch.Tensor,
    slots: torch.Tensor,
    context: torch.Tensor,
    scale: float,
    ratio: int,
    tokens: slice,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores float32 [sequences, tokens, entries] of some new tokens, and how many entries each sees, int64.

    Inputs as `lightning_indexer_topk`. Scores of entries that are not visible are not written.
    """
    sequences, length, heads, dim = q.shape
    first, stop, _ = tokens.indices(length)
    entries, wanted = slots.shape[1], stop - first
    q = q if q.dtype == index_cache.dtype else q.float()
    q, weights, slots = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, weights, slots))
    assert index_cache.stride(-1) == 1, "a key is in one piece"
    scores = torch.empty(sequences, wanted, entries, dtype=torch.float32, device=q.device)
    ready = torch.empty(sequences, wanted, dtype=torch.int64, device=q.device)
    token_blocks = triton.cdiv(wanted, TOKENS)
    blocks = max(1, triton.cdiv(entries, BLOCK_ENTRIES))  # one at least, to write `ready`
    span = triton.cdiv(blocks * token_blocks * sequences, PROGRAMS)  # blocks of a program
    _score[triton.cdiv(blocks, span), token_blocks, sequences](
        *(q, weights, index_cache, slots, context, scores, ready),
        *(*q.stride()[:3], *weights.stride()[:2], index_cache.stride(0), slots.stride(0)),
        *(entries, first, wanted, scale, ratio, span * BLOCK_ENTRIES),
        HEADS=heads,
        DIM=dim,
        TOKENS=TOKENS,
        BLOCK_H=max(16, triton.next_power_of_2(heads)),
        BLOCK_D=max(16, triton.next_power_of_2(dim)),
        BLOCK_E=BLOCK_ENTRIES,
        STAGES=3,
        num_warps=4,
    )
    return scores, ready


def lightning_indexer_topk(
    q: torch.Tensor,
    weights: torch.Tensor,
    index_cache: torch.Tensor,
    slots: torch.Tensor,
    context: torch.Tensor,
    top_k: int,
    scale: float,
    ratio: int = 1,
    keep_tail: bool = False,
) -> torch.Tensor:
    """The entries that each new token chooses, [sequences, length, chosen] int64; all as the reference of this name.

    Products are summed in another order, so that where two scores differ by less than rounding the other may be taken;
    among the scores as computed here the choice is exact.
    """
    sequences, length = q.shape[:2]
    entries = slots.shape[1]
    count = min(top_k, entries)
    chosen = torch.empty(sequences, length, count + keep_tail, dtype=torch.int64, device=q.device)
    step = max(1, SCORE_ELEMENTS // max(1, sequences * entries))
    for start in range(0, length, step):
        part = slice(start, min(start + step, length))
        scores, ready = visible_scores(q, weights, index_cache, slots, context, scale, ratio, part)
        if count:
            rows = chosen.view(-1, chosen.shape[-1])[:, :count] if step >= length else None
            own = torch.empty(ready.numel(), count, dtype=torch.int64, device=q.device) if rows is None else rows
            choose_largest(scores.flatten(0, 1), ready.flatten(), count, own)
            if rows is None:
                chosen[:, part, :count] = own.view(sequences, -1, count)
    if keep_tail:
        totals = context[:, None] + torch.arange(1, length + 1, device=q.device)
        chosen[..., -1] = torch.where(totals % ratio > 0, totals // ratio, -1)
    return chosen
