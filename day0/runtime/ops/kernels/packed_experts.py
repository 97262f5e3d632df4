"""Routed experts on packed MXFP4 in Triton: weights are read as they are stored, and only those of chosen experts.

A word has eight codes, taken apart two at a time; x lies in eight planes, so that a code's place in its word says which
plane it meets and nothing is shuffled. Where there are no more assignments than experts, a program multiplies rows with
one input in float32 (a scale meets the sum of its products); else matrix units take up to MOST inputs of an expert.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from day0.errors import CannotSay
from day0.runtime.ops.kernels.gates import activated
from day0.runtime.quant.kernels.codes import plain_power, power_of_two
from day0.runtime.quant.kernels.pairs import code_pair, high_half, high_number, low_half, low_number

MOST = 16
"""Inputs of a program; a block of assignments."""
LIFT, LOWER = tl.constexpr(2.0**100), tl.constexpr(2.0**26)
"""Together the 2^126 by which pairs are too small; float32 has room for both."""
RAISED, BELOW = tl.constexpr(2.0**64), tl.constexpr(2.0**62)
"""The same for matrix units: scales from 2^-63 to 2^62 are exact there, and no model has others."""
GROUP = 32
E8M0_BIAS = 127
FIRST_SCALE, LAST_SCALE = E8M0_BIAS - 63, E8M0_BIAS + 62
ONE = {"ROWS": 64, "WORDS": 32, "num_warps": 4}
"""The tile of one input."""
SOME = {"ROWS": 128, "WORDS": 32, "num_warps": 4}
"""The tile of up to MOST inputs."""


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
def _row_sums(packed, scale, x, rows, is_row, words, ROWS: tl.constexpr, WORDS: tl.constexpr):
    """Rows of one matrix times one lifted input: [ROWS], LOWER too small. x [8, words], as `_planes` makes them."""
    total = tl.zeros((ROWS, WORDS), tl.float32)
    for start in range(0, words, WORDS):
        column = start + tl.arange(0, WORDS)
        is_word = column < words
        mask = is_row[:, None] & is_word[None, :]
        word = tl.load(packed + rows[:, None] * words + column[None, :], mask=mask, other=0)
        stored = tl.load(scale + rows[:, None] * (words // 4) + (column // 4)[None, :], mask=mask, other=0)
        part = tl.zeros((ROWS, WORDS), tl.float32)
        for number in tl.static_range(4):
            pair = code_pair(word, number)
            low = tl.load(x + number * words + column, mask=is_word, other=0.0)
            high = tl.load(x + (number + 4) * words + column, mask=is_word, other=0.0)
            part += low_number(pair) * low[None, :]
            part += high_number(pair) * high[None, :]
        total += part * plain_power(stored)
    return tl.sum(total, axis=1)


@triton.jit
def _products(
    packed, scale, x, rows, is_row, x_rows, is_input, words,
    ROWS: tl.constexpr, MOST: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """Rows of one matrix times MOST inputs by matrix units: [ROWS, MOST], BELOW too small."""
    total = tl.zeros((ROWS, MOST), tl.float32)
    for start in range(0, words, WORDS):
        column = start + tl.arange(0, WORDS)
        is_word = column < words
        mask = is_row[:, None] & is_word[None, :]
        word = tl.load(packed + rows[:, None] * words + column[None, :], mask=mask, other=0)
        stored = tl.load(scale + rows[:, None] * (words // 4) + (column // 4)[None, :], mask=mask, other=127)
        factor = (power_of_two(stored) * RAISED).to(x.dtype.element_ty)
        inputs = x + x_rows[None, :] * words * 8 + column[:, None]
        present = is_input[None, :] & is_word[:, None]
        for number in tl.static_range(4):
            pair = code_pair(word, number)
            low = tl.load(inputs + number * words, mask=present, other=0.0)
            high = tl.load(inputs + (number + 4) * words, mask=present, other=0.0)
            if x.dtype.element_ty == tl.bfloat16:
                ones = low_half(pair)
                others = high_half(pair)
            else:
                ones, others = low_number(pair), high_number(pair)
            total = tl.dot(ones * factor, low, total, input_precision="ieee")
            total = tl.dot(others * factor, high, total, input_precision="ieee")
    return total * BELOW


@triton.jit
def _times(
    packed, scale, x, at, rows, size, x_rows, is_input, words,
    ROWS: tl.constexpr, MOST: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """Rows of matrix `at` [size, 8 words] times inputs, [ROWS, MOST] float32."""
    packed += at * size * words
    scale += at * size * (words // 4)
    is_row = rows < size
    if MOST == 1:
        one = tl.sum(x_rows, axis=0)
        found = _row_sums(packed, scale, x + one * words * 8, rows, is_row, words, ROWS, WORDS) * LOWER
        return found[:, None]
    return _products(packed, scale, x, rows, is_row, x_rows, is_input, words, ROWS, MOST, WORDS)


@triton.jit
def _gate_up(
    gate, gate_scale, up, up_scale, x, inner, order, expert, first, last, width, words, top_k, beta, linear_beta,
    SITU: tl.constexpr, BOUNDED: tl.constexpr, ROWS: tl.constexpr, MOST: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """inner[assignment] = activation(gate x, up x) in planes."""
    block = tl.program_id(1)
    start, end = tl.load(first + block), tl.load(last + block)
    if start >= end:
        return
    at = tl.load(expert + block).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    places = start + tl.arange(0, MOST)
    is_input = places < end
    tokens = tl.load(order + places, mask=is_input, other=0) // top_k
    opened = _times(gate, gate_scale, x, at, rows, width, tokens, is_input, words, ROWS, MOST, WORDS)
    value = _times(up, up_scale, x, at, rows, width, tokens, is_input, words, ROWS, MOST, WORDS)
    found = activated(opened, value, beta, linear_beta, SITU, BOUNDED)
    if MOST == 1:
        found *= LIFT
    plane = (rows % 8) * (width // 8) + rows // 8
    cells = inner + places[None, :] * width + plane[:, None]
    tl.store(cells, found.to(inner.dtype.element_ty), mask=(rows < width)[:, None] & is_input[None, :])


@triton.jit
def _down(
    down, down_scale, inner, given, weights, order, expert, first, last, features, words,
    ROWS: tl.constexpr, MOST: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """given[assignment] = its weight times down inner, float32."""
    block = tl.program_id(1)
    start, end = tl.load(first + block), tl.load(last + block)
    if start >= end:
        return
    at = tl.load(expert + block).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    places = start + tl.arange(0, MOST)
    is_input = places < end
    assignments = tl.load(order + places, mask=is_input, other=0)
    found = _times(down, down_scale, inner, at, rows, features, places, is_input, words, ROWS, MOST, WORDS)
    share = tl.load(weights + assignments, mask=is_input, other=0.0).to(tl.float32)
    cells = assignments[None, :].to(tl.int64) * features + rows[:, None]
    tl.store(given + cells, found * share[None, :], mask=(rows < features)[:, None] & is_input[None, :])


@triton.jit
def _planes(x, out, width, LIFTED: tl.constexpr, BLOCK: tl.constexpr):
    """out[row, column % 8, column // 8] = x[row, column]: what meets one place of a word lies together."""
    row = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + row * width + column, mask=inside, other=0.0)
    if LIFTED:
        value = value.to(tl.float32) * LIFT
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


def check_scales(matrices: PackedMatrices) -> None:
    """Refuse scales that matrix units would not multiply exactly; once, when weights are loaded, as it waits for them.

    Raises CannotSay naming the matrix and the first such scale.
    """
    scales = {"gate": matrices.gate_scale, "up": matrices.up_scale, "down": matrices.down_scale}
    for name, stored in scales.items():
        numbers = stored.view(torch.uint8)
        outside = (numbers < FIRST_SCALE) | (numbers > LAST_SCALE)
        if bool(outside.any()):
            power = int(numbers[outside][0]) - E8M0_BIAS
            raise CannotSay(
                f"a scale of 2^{power}; packed experts serve 2^-63 to 2^62",
                where=f"{name} scales of routed experts",
                hint="experts that are converted before they are multiplied serve every scale",
            )


class Gate(NamedTuple):
    """The activation: SiTU with its bounds (`situ_and_mul`), or silu where beta is None."""

    beta: float | None = None
    linear_beta: float | None = None


def packed_routed_experts(
    x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor, matrices: PackedMatrices, gate: Gate
) -> torch.Tensor:
    """As `routed_experts`: the weighted sum over each token's experts of down(activation(gate x, up x)).

    x [tokens, in] with in and width multiples of 32; weights, ids [tokens, top_k], no id twice in a row. Scales
    are from 2^-63 to 2^62, which `check_scales` makes sure of; of few assignments, numbers beyond 2^27 in x overflow.
    """
    tokens, features = x.shape
    experts, width = matrices.gate.shape[:2]
    top_k = ids.shape[1]
    assert features % GROUP == width % GROUP == 0, "whole groups"
    most = 1 if ids.numel() <= experts else MOST  # so few that hardly an expert has two
    stored = torch.float32 if most == 1 else x.dtype
    blocks = assignment_blocks(ids, experts, most)
    planes = torch.empty(tokens, features, dtype=stored, device=x.device)
    _planes[triton.cdiv(features, 1024), tokens](x.contiguous(), planes, features, LIFTED=most == 1, BLOCK=1024)
    inner = torch.empty(tokens * top_k, width, dtype=stored, device=x.device)
    given = torch.empty(tokens * top_k, features, dtype=torch.float32, device=x.device)
    gates, ups, downs = (_words(stored) for stored in (matrices.gate, matrices.up, matrices.down))
    gate_scale, up_scale, down_scale = (
        stored.contiguous().view(torch.uint8)
        for stored in (matrices.gate_scale, matrices.up_scale, matrices.down_scale)
    )
    tile = ONE if most == 1 else SOME
    beta, linear_beta = gate.beta or 1.0, gate.linear_beta or 1.0
    _gate_up[triton.cdiv(width, tile["ROWS"]), len(blocks.expert)](
        *(gates, gate_scale, ups, up_scale, planes, inner, *blocks, width, features // 8, top_k),
        *(beta, linear_beta),
        SITU=gate.beta is not None,
        BOUNDED=gate.linear_beta is not None,
        MOST=most,
        **tile,
    )
    shares = weights.contiguous()
    _down[triton.cdiv(features, tile["ROWS"]), len(blocks.expert)](
        *(downs, down_scale, inner, given, shares, *blocks, features, width // 8), MOST=most, **tile
    )
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    _sum_shares[triton.cdiv(features, 1024), tokens](given, out, features, top_k, BLOCK=1024)
    return out


def _words(stored: torch.Tensor) -> torch.Tensor:
    """Packed bytes as words of eight codes."""
    return stored.contiguous().view(torch.uint8).view(torch.int32)
