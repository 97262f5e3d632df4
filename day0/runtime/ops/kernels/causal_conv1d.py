"""The causal convolution of a channel in Triton: inputs and the state before them read once, both results written."""

from __future__ import annotations

from typing import Literal

import torch
import triton
import triton.language as tl

CHANNELS, TOKENS = 512, 8


@triton.jit
def _convolve(
    x, weight, bias, state, out, moved, length, width, x_sequence, x_token,
    TAPS: tl.constexpr, BIAS: tl.constexpr, SILU: tl.constexpr, CHANNELS: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Some tokens of some channels; what came before a token is in x, or in the state where the sequence starts."""
    sequence = tl.program_id(2).to(tl.int64)
    first = tl.program_id(1) * TOKENS
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    inside = channel < width
    PAST: tl.constexpr = TAPS - 1
    x += sequence * x_sequence
    state += (sequence * width + channel) * PAST
    for step in tl.static_range(TOKENS):
        t = first + step + tl.zeros((CHANNELS,), tl.int32)
        wanted = inside & (t < length)
        total = tl.zeros((CHANNELS,), tl.float32)
        for tap in tl.static_range(TAPS):
            at = t + tap - PAST
            seen = tl.load(x + at * x_token + channel, mask=wanted & (at >= 0), other=0.0).to(tl.float32)
            # A state is read in the dtype of x, as the reference joins them.
            before = tl.load(state + at + PAST, mask=wanted & (at < 0), other=0.0)
            seen = tl.where(at < 0, before.to(x.dtype.element_ty).to(tl.float32), seen)
            total += seen * tl.load(weight + channel * TAPS + tap, mask=inside, other=0.0).to(tl.float32)
        if BIAS:
            total += tl.load(bias + channel, mask=inside, other=0.0).to(tl.float32)
        if SILU:
            total = total / (1.0 + tl.exp(-total))
        tl.store(out + (sequence * length + t) * width + channel, total.to(out.dtype.element_ty), mask=wanted)
    if first == 0:
        for place in tl.static_range(PAST):
            at = length - PAST + place + tl.zeros((CHANNELS,), tl.int32)
            seen = tl.load(x + at * x_token + channel, mask=inside & (at >= 0), other=0.0).to(tl.float32)
            before = tl.load(state + at + PAST, mask=inside & (at < 0), other=0.0)
            kept = tl.where(at < 0, before.to(x.dtype.element_ty).to(tl.float32), seen)
            target = moved + (sequence * width + channel) * PAST + place
            tl.store(target, kept.to(moved.dtype.element_ty), mask=inside)


def causal_conv1d(
    x: torch.Tensor, weight: torch.Tensor, state: torch.Tensor, activation: Literal["silu"] | None = "silu"
) -> tuple[torch.Tensor, torch.Tensor]:
    """As the reference of this name."""
    return _launch(x, weight, None, state, activation)


def causal_conv1d_bias(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    state: torch.Tensor,
    activation: Literal["silu"] | None = "silu",
) -> tuple[torch.Tensor, torch.Tensor]:
    """As the reference of this name."""
    return _launch(x, weight, bias, state, activation)


def _launch(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, state: torch.Tensor, activation: str | None
) -> tuple[torch.Tensor, torch.Tensor]:
    sequences, length, width = x.shape
    assert activation in ("silu", None), f"no activation {activation!r}"
    x = x if x.stride(-1) == 1 else x.contiguous()
    tokens = min(TOKENS, triton.next_power_of_2(length))
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    moved = torch.empty(state.shape, dtype=state.dtype, device=x.device)
    _convolve[triton.cdiv(width, CHANNELS), triton.cdiv(length, tokens), sequences](
        *(x, weight.contiguous(), bias, state.contiguous(), out, moved, length, width, x.stride(0), x.stride(1)),
        TAPS=weight.shape[1],
        BIAS=bias is not None,
        SILU=activation == "silu",
        CHANNELS=CHANNELS,
        TOKENS=tokens,
        num_warps=4,
    )
    return out, moved
