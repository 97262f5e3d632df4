"""Grouped-query attention over paged keys and values in Triton, decode and prefill, with windows, sinks and softcap.

A program holds rows of one key head's group, (new token, query head) pairs, and reads one part of the keys they may see
once, through the slots of the sequence: for decoding a row is a query head, for prefill tokens fill the block.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from day0.runtime.ops.kernels.split_attention import (
    LOG2E,
    Tiling,
    join_splits,
    leave_part,
    num_splits,
    part_buffers,
    part_of,
    soften,
    start_softmax,
)

PROGRAMS, MANY = 264, 1056
"""Programs wanted at the least, two for each multiprocessor of a large chip; and where there are more than that."""
LONG = 1024
HALF = {128: Tiling(64, 64, 4, 3), 256: Tiling(64, 32, 4, 2), 512: Tiling(32, 16, 4, 3)}
"""By the widest head that fits, for numbers of 16 bits."""
WIDE = Tiling(16, 16, 4, 1)


def _tiling(dtype: torch.dtype, width: int) -> Tiling:
    if dtype == torch.float32:
        return WIDE
    return HALF[next((widest for widest in HALF if width <= widest), max(HALF))]


@triton.jit
def _attend(
    q, k_cache, v_cache, slots, context, sinks, parts, sums, q_sequence, q_token, q_head, k_row, k_head, v_row,
    v_head, slots_row, length, window, scale, softcap,
    GROUP: tl.constexpr, DIM: tl.constexpr, VALUE: tl.constexpr, CHUNKED: tl.constexpr, SINKS: tl.constexpr,
    CAPPED: tl.constexpr, SPLIT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """parts[split, n, t, h] = softmax average over the part, sums[split, n, t, h] = log2 of its sum."""
    row_blocks = tl.cdiv(length * GROUP, BLOCK_M)
    sequence = (tl.program_id(0) // row_blocks).to(tl.int64)
    rows = (tl.program_id(0) % row_blocks) * BLOCK_M + tl.arange(0, BLOCK_M)
    key_head, kv_heads = tl.program_id(1), tl.num_programs(1)
    split, splits = tl.program_id(2), tl.num_programs(2)
    is_row, t, head = rows < length * GROUP, rows // GROUP, key_head * GROUP + rows % GROUP
    channels, columns = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    is_channel, is_column = channels < DIM, columns < VALUE
    queries = tl.load(
        q + sequence * q_sequence + (t * q_token + head * q_head)[:, None] + channels[None, :],
        mask=is_row[:, None] & is_channel[None, :],
        other=0.0,
    )
    place = (tl.load(context + sequence) + t).to(tl.int32)
    earliest = place - place % window if CHUNKED else tl.maximum(place - window + 1, 0)
    last = tl.max(tl.where(is_row, place, 0), axis=0) + 1
    first = tl.min(tl.where(is_row, earliest, last), axis=0)
    low, high = part_of(first, last, split, splits, BLOCK_S)
    best, total = start_softmax(sinks, head, is_row, split, SINKS, BLOCK_M)
    mixed = tl.zeros((BLOCK_M, BLOCK_V), tl.float32)
    slots += sequence * slots_row
    k_cache += key_head * k_head
    v_cache += key_head * v_head
    places = low + tl.arange(0, BLOCK_S)
    fetched = tl.load(slots + places, mask=places < high, other=0)  # a block before its rows, so that none waits
    for _ in tl.range(low, high, BLOCK_S, num_stages=STAGES):
        at, there = fetched, places < high
        keys = tl.load(
            k_cache + at[None, :] * k_row + channels[:, None], mask=there[None, :] & is_channel[:, None], other=0.0
        )
        fetched = tl.load(slots + places + BLOCK_S, mask=places + BLOCK_S < high, other=0)
        scores = tl.dot(queries, keys.to(queries.dtype), input_precision="ieee") * scale
        if CAPPED:
            # tanh by way of exp: at large arguments it overflows to infinity and the quotient to 0.
            scores = softcap * (1.0 - 2.0 / (tl.exp(2.0 * scores / softcap) + 1.0))
        visible = (places[None, :] <= place[:, None]) & (places[None, :] >= earliest[:, None]) & there[None, :]
        scores = tl.where(visible, scores * LOG2E, float("-inf"))
        weights, kept, best, total = soften(scores, best, total)
        values = tl.load(
            v_cache + at[:, None] * v_row + columns[None, :], mask=there[:, None] & is_column[None, :], other=0.0
        )
        mixed = tl.dot(
            weights.to(queries.dtype), values.to(queries.dtype), mixed * kept[:, None], input_precision="ieee"
        )
        places += BLOCK_S
    row = (sequence * length + t) * kv_heads * GROUP + head
    total_rows = (tl.num_programs(0) // row_blocks) * length * kv_heads * GROUP
    leave_part(parts, sums, mixed, best, total, row, split, total_rows, is_row, columns, VALUE, SPLIT)


def paged_gqa_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
    context: torch.Tensor,
    scale: float,
    window: int | None,
) -> torch.Tensor:
    """As the reference of this name."""
    return paged_gqa_attention_variant(q, k_cache, v_cache, slots, context, scale, window)


def paged_gqa_attention_variant(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
    context: torch.Tensor,
    scale: float,
    window: int | None,
    chunked: bool = False,
    sinks: torch.Tensor | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """As the reference of this name: [sequences, length, heads, value_dim] in q's dtype."""
    sequences, length, heads, dim = q.shape
    kv_heads, value = v_cache.shape[1:]
    group, longest = heads // kv_heads, slots.shape[1]
    assert k_cache.stride(-1) == v_cache.stride(-1) == 1, "a head of a cached row is in one piece"
    out = torch.empty(sequences, length, heads, value, dtype=q.dtype, device=q.device)
    q = q.to(torch.promote_types(q.dtype, k_cache.dtype))  # products are made in one dtype, the wider one
    q, slots = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, slots))
    tiling = _tiling(q.dtype, max(dim, value))
    rows = min(tiling.rows, max(16, triton.next_power_of_2(length * group)))
    row_programs = sequences * triton.cdiv(length * group, rows)
    seen = longest if window is None else min(longest, window + length - 1)
    programs = row_programs * kv_heads
    # Long reads of more programs than fit at once are cut too: the last ones to start then end sooner.
    wanted = MANY if programs > PROGRAMS and seen >= LONG else PROGRAMS
    splits = num_splits(programs, seen, tiling.keys, wanted)
    parts, sums = part_buffers(splits, out)
    _attend[row_programs, kv_heads, splits](
        *(q, k_cache, v_cache, slots, context, sinks, parts, sums),
        *(*q.stride()[:3], *k_cache.stride()[:2], *v_cache.stride()[:2], slots.stride(0)),
        *(length, longest if window is None else window, scale, 1.0 if softcap is None else softcap),
        GROUP=group,
        DIM=dim,
        VALUE=value,
        CHUNKED=chunked and window is not None,
        SINKS=sinks is not None,
        CAPPED=softcap is not None,
        SPLIT=splits > 1,
        BLOCK_M=rows,
        BLOCK_S=tiling.keys,
        BLOCK_D=max(16, triton.next_power_of_2(dim)),
        BLOCK_V=max(16, triton.next_power_of_2(value)),
        STAGES=tiling.stages,
        num_warps=tiling.warps,
    )
    if sums is not None:
        join_splits(parts, sums, out)
    return out
