"""Routed experts on packed MXFP4 in Triton: weights are read as they are stored, and only those of chosen experts.

For few assignments an expert. A program multiplies some rows of one expert's matrix with the up to `MOST` inputs that
chose it, in float32: at the rate of memory a multiprocessor has about four instructions for a weight, so codes are
taken apart two at a time, a group's scale meets the sum of its 32 products, and the powers of two that this leaves out
are put back once (2^100 into the inputs, the rest into the result; all exact).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from day0.runtime.ops.kernels.gates import activated
from day0.runtime.quant.kernels.codes import power_of_two
from day0.runtime.quant.kernels.pairs import code_pair, high_number, low_number

MOST = 4
"""Inputs of a program; a block of assignments."""
LIFT, LOWER = tl.constexpr(2.0**100), tl.constexpr(2.0**26)
"""Together the 2^126 by which pairs are too small."""
GROUP = 32
ROWS, GROUPS, WARPS = 8, 16, 4
"""Rows and groups of a tile: 16 threads read 16 bytes of a row each."""


class Blocks(NamedTuple):
    """Which assignments a program takes: sorted by expert, `order` [assignments] names them.

    expert, first, last: [blocks] int32 each; a block without assignments has last = first.
    """

    order: torch.Tensor
    expert: torch.Tensor
    first: torch.Tensor
    last: torch.Tensor


def assignment_blocks(ids: torch.Tensor, experts: int, most: int) -> Blocks:
    """Blocks of up to `most` assignments of one expert each; ids [tokens, top_k]. Nothing waits for the host."""
    flat = ids.flatten()
    count = flat.numel()
    if len(ids) == 1:  # no expert is chosen twice by a token
        order = torch.arange(count, device=ids.device, dtype=torch.int32)
        return Blocks(order, flat.int(), order, order + 1)
    found, order = flat.sort(stable=True)
    starts = torch.searchsorted(found, torch.arange(experts + 1, device=ids.device))
    sizes = starts.diff()
    ends = ((sizes + most - 1) // most).cumsum(0)
    blocks = torch.arange(min(count, min(experts, count) + count // most), device=ids.device)
    expert = torch.searchsorted(ends, blocks, right=True)
    known = expert.clamp(max=experts - 1)
    before = torch.where(known > 0, ends[known - 1], 0)
    first = starts[known] + (blocks - before) * most
    last = torch.where(expert < experts, torch.minimum(first + most, starts[known + 1]), first)
    return Blocks(order.int(), known.int(), first.int(), last.int())


@triton.jit
def _sums(
    packed, scale, x, rows, is_row, x_rows, is_input, groups,
    ROWS: tl.constexpr, MOST: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """A list of MOST sums [ROWS]: rows of one matrix times inputs, 2^26 too small.

    x float32, eight planes a row, as `planes` makes them; x_rows their places, of which `is_input` exist.
    """
    totals = tl.zeros((ROWS, MOST, GROUPS), tl.float32)
    columns = tl.arange(0, GROUPS)
    words = tl.arange(0, 4)
    for start in range(0, groups, GROUPS):
        group = start + columns
        is_group = group < groups
        at = rows[:, None] * groups + group[None, :]
        mask = is_row[:, None] & is_group[None, :]
        word = tl.load(packed + at[:, :, None] * 4 + words[None, None, :], mask=mask[:, :, None], other=0)
        factor = power_of_two(tl.load(scale + at, mask=mask, other=0))
        places = group[:, None] * 4 + words[None, :]
        inputs = x + x_rows[:, None, None] * groups * 32 + places[None, :, :]
        present = is_input[:, None, None] & is_group[None, :, None]
        part = tl.zeros((ROWS, MOST, GROUPS, 4), tl.float32)
        for number in tl.static_range(4):
            pair = code_pair(word, number)
            low = tl.load(inputs + number * groups * 4, mask=present, other=0.0)
            high = tl.load(inputs + (number + 4) * groups * 4, mask=present, other=0.0)
            part += low_number(pair)[:, None, :, :] * low[None, :, :, :]
            part += high_number(pair)[:, None, :, :] * high[None, :, :, :]
        totals += tl.sum(part, axis=3) * factor[:, None, :]
    return tl.sum(totals, axis=2)


@triton.jit
def _gate_up(
    gate, gate_scale, up, up_scale, x, inner, order, expert, first, last, width, groups, top_k, beta, linear_beta,
    SITU: tl.constexpr, BOUNDED: tl.constexpr, ROWS: tl.constexpr, MOST: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """inner[assignment] = activation(gate x, up x) in planes, lifted for the next product."""
    block = tl.program_id(1)
    start, end = tl.load(first + block), tl.load(last + block)
    if start >= end:
        return
    at = tl.load(expert + block).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = rows < width
    places = start + tl.arange(0, MOST)
    is_input = places < end
    tokens = tl.load(order + places, mask=is_input, other=0) // top_k
    words, scales = at * width * groups * 4, at * width * groups
    opened = _sums(gate + words, gate_scale + scales, x, rows, is_row, tokens, is_input, groups, ROWS, MOST, GROUPS)
    value = _sums(up + words, up_scale + scales, x, rows, is_row, tokens, is_input, groups, ROWS, MOST, GROUPS)
    found = activated(opened * LOWER, value * LOWER, beta, linear_beta, SITU, BOUNDED) * LIFT
    plane = (rows % 8) * (width // 8) + rows // 8
    tl.store(inner + places[None, :] * width + plane[:, None], found, mask=is_row[:, None] & is_input[None, :])


@triton.jit
def _down(
    down, down_scale, inner, given, weights, order, expert, first, last, features, groups,
    ROWS: tl.constexpr, MOST: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """given[assignment] = its weight times down inner, float32."""
    block = tl.program_id(1)
    start, end = tl.load(first + block), tl.load(last + block)
    if start >= end:
        return
    at = tl.load(expert + block).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = rows < features
    places = start + tl.arange(0, MOST)
    is_input = places < end
    assignments = tl.load(order + places, mask=is_input, other=0)
    found = _sums(
        down + at * features * groups * 4, down_scale + at * features * groups,
        *(inner, rows, is_row, places, is_input, groups, ROWS, MOST, GROUPS),
    )  # fmt: skip
    share = tl.load(weights + assignments, mask=is_input, other=0.0).to(tl.float32)
    cells = assignments[None, :].to(tl.int64) * features + rows[:, None]
    tl.store(given + cells, found * LOWER * share[None, :], mask=is_row[:, None] & is_input[None, :])


@triton.jit
def _planes(x, out, width, BLOCK: tl.constexpr):
    """out[row, column % 8, column // 8] = 2^100 x[row, column]."""
    row = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + row * width + column, mask=inside, other=0.0).to(tl.float32) * LIFT
    tl.store(out + row * width + (column % 8) * (width // 8) + column // 8, value, mask=inside)


@triton.jit
def _sum_shares(given, out, features, top_k, BLOCK: tl.constexpr):
    """out[token] = the sum of its top_k rows, in their order."""
    token = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = column < features
    total = tl.zeros((BLOCK,), tl.float32)
    for place in range(top_k):
        total += tl.load(given + (token * top_k + place) * features + column, mask=inside, other=0.0)
    tl.store(out + token * features + column, total.to(out.dtype.element_ty), mask=inside)


class PackedMatrices(NamedTuple):
    """MXFP4 of all experts: packed bytes [experts, out, in / 2] and E8M0 bytes [experts, out, in / 32] of each."""

    gate: torch.Tensor
    gate_scale: torch.Tensor
    up: torch.Tensor
    up_scale: torch.Tensor
    down: torch.Tensor
    down_scale: torch.Tensor


class Gate(NamedTuple):
    """The activation: SiTU with its bounds (`situ_and_mul`), or silu where beta is None."""

    beta: float | None = None
    linear_beta: float | None = None


def packed_routed_experts(
    x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor, matrices: PackedMatrices, gate: Gate
) -> torch.Tensor:
    """As `routed_experts`: the weighted sum over each token's experts of down(activation(gate x, up x)).

    x [tokens, in] with in and width multiples of 32; weights, ids [tokens, top_k], no id twice in a row. Everything
    between x and the result stays float32. Numbers beyond 2^27 in x or between the products overflow.
    """
    tokens, features = x.shape
    experts, width = matrices.gate.shape[:2]
    top_k = ids.shape[1]
    assert features % GROUP == width % GROUP == 0, "whole groups"
    most = 1 if tokens == 1 else MOST
    blocks = assignment_blocks(ids, experts, most)
    lifted = torch.empty(tokens, features, dtype=torch.float32, device=x.device)
    _planes[triton.cdiv(features, 1024), tokens](x.contiguous(), lifted, features, BLOCK=1024)
    inner = torch.empty(tokens * top_k, width, dtype=torch.float32, device=x.device)
    given = torch.empty(tokens * top_k, features, dtype=torch.float32, device=x.device)
    gates, ups, downs = (_words(stored) for stored in (matrices.gate, matrices.up, matrices.down))
    gate_scale, up_scale, down_scale = (
        stored.contiguous().view(torch.uint8)
        for stored in (matrices.gate_scale, matrices.up_scale, matrices.down_scale)
    )
    tile = {"ROWS": ROWS, "MOST": most, "GROUPS": GROUPS, "num_warps": WARPS}
    beta, linear_beta = gate.beta or 1.0, gate.linear_beta or 1.0
    _gate_up[triton.cdiv(width, ROWS), len(blocks.expert)](
        *(gates, gate_scale, ups, up_scale, lifted, inner, *blocks, width, features // GROUP, top_k),
        *(beta, linear_beta),
        SITU=gate.beta is not None,
        BOUNDED=gate.linear_beta is not None,
        **tile,
    )
    shares = weights.contiguous()
    _down[triton.cdiv(features, ROWS), len(blocks.expert)](
        *(downs, down_scale, inner, given, shares, *blocks, features, width // GROUP), **tile
    )
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    _sum_shares[triton.cdiv(features, 1024), tokens](given, out, features, top_k, BLOCK=1024)
    return out


def _words(stored: torch.Tensor) -> torch.Tensor:
    """Packed bytes as words of eight codes."""
    return stored.contiguous().view(torch.uint8).view(torch.int32)
