"""Attention over paged latents in Triton, absorbed form (DeepSeek-V2, section 2.1): chosen tokens, a window, or all.

A program reads the rows of one part of a query token's past once, through its slots, for a block of heads: the rows
are keys, and their first `latent` channels the values too.
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

PROGRAMS = 132
"""Programs wanted at the least: the tiles of one fill a multiprocessor of a large chip."""


HALF = Tiling(rows=64, keys=64, warps=8, stages=2)
LONG_HALF = Tiling(rows=16, keys=16, warps=4, stages=2)
"""For latents above 512, of which shared memory holds less."""
WIDE = Tiling(rows=16, keys=16, warps=8, stages=1)
"""Float32 rows fill shared memory twice as fast and are multiplied without rounding."""


@triton.jit
def _look_up(ids, slots, rows, slots_row, length, chosen, BLOCK: tl.constexpr):
    """rows[n, t, c] = the slot of the place ids[n, t, c], -1 for none."""
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    places = tl.load(ids + token * chosen + columns, mask=columns < chosen, other=-1)
    found = tl.load(slots + (token // length) * slots_row + places, mask=places >= 0, other=-1)
    tl.store(rows + token * chosen + columns, found, mask=columns < chosen)


@triton.jit
def _attend(
    q_latent, q_rope, cache, slots, context, sinks, parts, sums, l_sequence, l_token, l_head, r_sequence, r_token,
    r_head, cache_row, slots_row, length, chosen, window, scale,
    HEADS: tl.constexpr, LATENT: tl.constexpr, ROPE: tl.constexpr, SPARSE: tl.constexpr, SINKS: tl.constexpr,
    SPLIT: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_R: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """parts[split, n, t, h] = softmax average over the part, sums[split, n, t, h] = log2 of its sum."""
    head_blocks: tl.constexpr = (HEADS + BLOCK_H - 1) // BLOCK_H
    token = (tl.program_id(0) // head_blocks).to(tl.int64)
    heads = (tl.program_id(0) % head_blocks) * BLOCK_H + tl.arange(0, BLOCK_H)
    split, splits, is_head = tl.program_id(1), tl.num_programs(1), heads < HEADS
    sequence, t = token // length, token % length
    latents, ropes = tl.arange(0, BLOCK_L), tl.arange(0, BLOCK_R)
    is_latent, is_rope = latents < LATENT, ropes < ROPE
    lq = tl.load(
        q_latent + sequence * l_sequence + t * l_token + heads[:, None] * l_head + latents[None, :],
        mask=is_head[:, None] & is_latent[None, :],
        other=0.0,
    )
    rq = tl.load(
        q_rope + sequence * r_sequence + t * r_token + heads[:, None] * r_head + ropes[None, :],
        mask=is_head[:, None] & is_rope[None, :],
        other=0.0,
    )
    first, last = 0, chosen
    if not SPARSE:
        last = (tl.load(context + sequence) + t + 1).to(tl.int32)
        first = tl.maximum(last - window, 0)
    low, high = part_of(first, last, split, splits, BLOCK_S)
    best, total = start_softmax(sinks, heads, is_head, split, SINKS, BLOCK_H)
    mixed = tl.zeros((BLOCK_H, BLOCK_L), tl.float32)
    slots += (token if SPARSE else sequence) * slots_row
    for start in tl.range(low, high, BLOCK_S, num_stages=STAGES):
        places = start + tl.arange(0, BLOCK_S)
        rows = tl.load(slots + places, mask=places < high, other=-1)
        there = rows >= 0
        row = cache + rows[:, None] * cache_row
        values = tl.load(row + latents[None, :], mask=there[:, None] & is_latent[None, :], other=0.0).to(lq.dtype)
        shared = tl.load(row + LATENT + ropes[None, :], mask=there[:, None] & is_rope[None, :], other=0.0)
        scores = tl.dot(rq, tl.trans(shared.to(lq.dtype)), input_precision="ieee")
        scores = tl.dot(lq, tl.trans(values), scores, input_precision="ieee") * (scale * LOG2E)
        scores = tl.where(there[None, :], scores, float("-inf"))
        weights, kept, best, total = soften(scores, best, total)
        mixed = tl.dot(weights.to(lq.dtype), values, mixed * kept[:, None], input_precision="ieee")
    rows = (tl.num_programs(0) // head_blocks) * HEADS
    row = token * HEADS + heads
    leave_part(parts, sums, mixed, best, total, row, split, rows, is_head, latents, LATENT, SPLIT)


def paged_mla_attention(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    latent_cache: torch.Tensor,
    slots: torch.Tensor,
    context: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """As the reference of this name: causal attention over all tokens, [sequences, length, heads, latent]."""
    return _launch(q_latent, q_rope, latent_cache, slots, scale, context=context)


def window_mla_attention(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    latent_cache: torch.Tensor,
    slots: torch.Tensor,
    context: torch.Tensor,
    scale: float,
    window: int | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """As the reference of this name: over the last `window` tokens; `sinks` [heads] join the denominator."""
    return _launch(q_latent, q_rope, latent_cache, slots, scale, context=context, window=window, sinks=sinks)


def sparse_mla_attention(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    latent_cache: torch.Tensor,
    slots: torch.Tensor,
    ids: torch.Tensor,
    scale: float,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """As the reference of this name: over the places `ids` [sequences, length, chosen] int64, -1 for none."""
    return _launch(q_latent, q_rope, latent_cache, slots, scale, ids=ids, sinks=sinks)


def _launch(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    cache: torch.Tensor,
    slots: torch.Tensor,
    scale: float,
    *,
    context: torch.Tensor | None = None,
    ids: torch.Tensor | None = None,
    window: int | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    sequences, length, heads, latent = q_latent.shape
    assert cache.stride(-1) == 1, "a cached row is in one piece"
    # Products are made in one dtype; where queries and cache differ it is the wider one.
    dtype = torch.promote_types(q_latent.dtype, cache.dtype)
    queries = [x.to(dtype) if x.stride(-1) == 1 else x.to(dtype).contiguous() for x in (q_latent, q_rope)]
    slots = slots if slots.stride(-1) == 1 else slots.contiguous()
    longest = slots.shape[1]
    tiling = WIDE if dtype == torch.float32 else HALF if latent <= 512 else LONG_HALF
    block_heads = min(tiling.rows, max(16, triton.next_power_of_2(heads)))
    programs = sequences * length * triton.cdiv(heads, block_heads)
    keys = ids.shape[-1] if ids is not None else longest if window is None else min(window, longest)
    splits = num_splits(programs, keys, tiling.keys, PROGRAMS)
    out = torch.empty(q_latent.shape, dtype=q_latent.dtype, device=q_latent.device)
    parts, sums = part_buffers(splits, out)
    rows = slots if ids is None else _slots_of(ids, slots)
    _attend[programs, splits](
        *(*queries, cache, rows, context, sinks, parts, sums),
        *(stride for x in queries for stride in x.stride()[:3]),
        *(cache.stride(0), rows.stride(0), length, keys, longest if window is None else window, scale),
        HEADS=heads,
        LATENT=latent,
        ROPE=q_rope.shape[-1],
        SPARSE=ids is not None,
        SINKS=sinks is not None,
        SPLIT=splits > 1,
        BLOCK_H=block_heads,
        BLOCK_S=tiling.keys,
        BLOCK_L=max(16, triton.next_power_of_2(latent)),
        BLOCK_R=max(16, triton.next_power_of_2(q_rope.shape[-1])),
        STAGES=tiling.stages,
        num_warps=tiling.warps,
    )
    if sums is not None:
        join_splits(parts, sums, out)
    return out


def _slots_of(ids: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """[tokens, chosen] int64. Looked up beforehand: in the loop a load would wait for a load that waits for a load."""
    length, chosen = ids.shape[1:]
    ids = ids.contiguous()
    rows = torch.empty(ids.shape[0] * length, chosen, dtype=torch.int64, device=ids.device)
    block = min(1024, triton.next_power_of_2(chosen))
    _look_up[rows.shape[0], triton.cdiv(chosen, block)](ids, slots, rows, slots.stride(0), length, chosen, BLOCK=block)
    return rows
