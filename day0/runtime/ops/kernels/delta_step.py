"""One step, or a few, of the delta rule in Triton: every state is read once, moved on in registers and written once.

Kimi Delta Attention (arXiv 2510.26692: a decay per key channel) and Gated DeltaNet (arXiv 2412.06464: one per head).
A program holds some value columns of one head's state [key, value]; columns never meet, so nothing is exchanged.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

FEW, COLUMNS_OF_FEW, COLUMNS = 256, 16, 64
"""Value columns of a program: rows of 256 bytes of a state; of less than so many states smaller pieces for all."""


@triton.jit
def _steps(
    q, k, v, g, beta, source, target, slots, out, q_sequence, q_token, q_head, k_sequence, k_token, k_head,
    v_sequence, v_token, v_head, g_sequence, g_token, g_head, b_sequence, b_token, b_head, source_row, target_row,
    length, scale,
    HEADS: tl.constexpr, SHARING: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr, PER_CHANNEL: tl.constexpr,
    POOLED: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """out[n, t, h] = scale S_t^T q_t and the states after the last token; see `delta_steps` for the shapes."""
    columns = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    head, sequence = tl.program_id(1), tl.program_id(2).to(tl.int64)
    key_head = head // SHARING
    channels = tl.arange(0, BLOCK_K)
    is_channel, is_column = channels < KEYS, columns < VALUES
    row = sequence
    if POOLED:
        row = tl.load(slots + sequence).to(tl.int64)
    cells = head * KEYS * VALUES + channels[:, None] * VALUES + columns[None, :]
    is_cell = is_channel[:, None] & is_column[None, :]
    state = tl.load(source + row * source_row + cells, mask=is_cell, other=0.0)
    q += sequence * q_sequence + key_head * q_head
    k += sequence * k_sequence + key_head * k_head
    v += sequence * v_sequence + head * v_head
    g += sequence * g_sequence + head * g_head
    beta += sequence * b_sequence + head * b_head
    out += (sequence * length * HEADS + head) * VALUES
    for t in range(length):
        query = tl.load(q + t * q_token + channels, mask=is_channel, other=0.0).to(tl.float32)
        key = tl.load(k + t * k_token + channels, mask=is_channel, other=0.0).to(tl.float32)
        value = tl.load(v + t * v_token + columns, mask=is_column, other=0.0).to(tl.float32)
        if PER_CHANNEL:
            decay = tl.exp(tl.load(g + t * g_token + channels, mask=is_channel, other=0.0).to(tl.float32))
            state *= decay[:, None]
        else:
            state *= tl.exp(tl.load(g + t * g_token).to(tl.float32))
        strength = tl.load(beta + t * b_token).to(tl.float32)
        # Both sums run over the decayed state, so that they need not wait for one another: S_t^T q is what the
        # decayed state gives plus what the write adds to it.
        predicted = tl.sum(state * key[:, None], axis=0)
        found = tl.sum(state * query[:, None], axis=0)
        written = strength * (value - predicted)
        state += key[:, None] * written[None, :]
        answer = (found + written * tl.sum(key * query, axis=0)) * scale
        tl.store(out + t * HEADS * VALUES + columns, answer.to(out.dtype.element_ty), mask=is_column)
    tl.store(target + row * target_row + cells, state, mask=is_cell)


def delta_steps(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs like v and new states, the old ones kept: as `kda_recurrent` and `gated_delta_recurrent`.

    q, k [sequences, length, key_heads, head_dim]; v [sequences, length, heads, value_dim]; beta and g
    [sequences, length, heads], g with another axis head_dim where it is per channel; state float32
    [sequences, heads, head_dim, value_dim].
    """
    moved = torch.empty_like(state, memory_format=torch.contiguous_format)
    return _launch(q, k, v, g, beta, state.contiguous(), moved, None, scale), moved


def delta_steps_in_place(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    states: torch.Tensor,
    slots: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """The same on the rows `slots` [sequences] of a pool `states` [rows, heads, head_dim, value_dim], moved on there.

    No two sequences may share a slot. A row of the pool must be contiguous.
    """
    return _launch(q, k, v, g, beta, states, states, slots, scale)


def _launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    source: torch.Tensor,
    target: torch.Tensor,
    slots: torch.Tensor | None,
    scale: float,
) -> torch.Tensor:
    sequences, length, heads, values = v.shape
    keys = k.shape[-1]
    assert source.dtype == torch.float32 and source[0].is_contiguous(), "a state is float32 and in one piece"
    q, k, v, g = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v, g))
    out = torch.empty(sequences, length, heads, values, dtype=v.dtype, device=v.device)
    columns = min(COLUMNS_OF_FEW if sequences * heads < FEW else COLUMNS, triton.next_power_of_2(values))
    _steps[triton.cdiv(values, columns), heads, sequences](
        *(q, k, v, g, beta, source, target, slots, out),
        *(stride for x in (q, k, v, g, beta) for stride in x.stride()[:3]),
        *(source.stride(0), target.stride(0), length, scale),
        HEADS=heads,
        SHARING=heads // k.shape[2],
        KEYS=keys,
        VALUES=values,
        PER_CHANNEL=g.dim() == 4,
        POOLED=slots is not None,
        BLOCK_K=triton.next_power_of_2(keys),
        BLOCK_V=columns,
        num_warps=4,
    )
    return out
