"""Gated activations in Triton: both inputs are read once, the result written once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK, WARPS = 2048, 8


@triton.jit
def bounded(x, bound):
    """bound tanh(x / bound) by an exponential that saturates on both sides and keeps small x."""
    part = tl.exp(-2.0 * tl.abs(x) / bound)
    near = tl.abs(x) < 0.01 * bound
    ratio = x / bound
    exact = bound * (1.0 - part) / (1.0 + part)
    series = x * (1.0 - ratio * ratio * (1.0 / 3.0))  # the next term is below rounding there
    return tl.where(near, series, tl.where(x < 0, -exact, exact))


@triton.jit
def activated(gate, up, beta, linear_beta, SITU: tl.constexpr, BOUNDED: tl.constexpr):
    """silu(gate) up, or beta tanh(gate / beta) sigmoid(gate) times up, bounded likewise; float32."""
    share = 1.0 / (1.0 + tl.exp(-gate))
    if SITU:
        if BOUNDED:
            up = bounded(up, linear_beta)
        return bounded(gate, beta) * share * up
    return gate * share * up


@triton.jit
def _gate(
    gate, up, out, count, beta, linear_beta, SITU: tl.constexpr, BOUNDED: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    opened = tl.load(gate + at, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(up + at, mask=inside, other=0.0).to(tl.float32)
    found = activated(opened, value, beta, linear_beta, SITU, BOUNDED)
    tl.store(out + at, found.to(out.dtype.element_ty), mask=inside)


def silu_and_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """As the reference of this name, rounded once."""
    return _launch(gate, up, None, None)


def situ_and_mul(gate: torch.Tensor, up: torch.Tensor, beta: float, linear_beta: float | None) -> torch.Tensor:
    """As the reference of this name."""
    return _launch(gate, up, beta, linear_beta)


def _launch(gate: torch.Tensor, up: torch.Tensor, beta: float | None, linear_beta: float | None) -> torch.Tensor:
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    _gate[triton.cdiv(out.numel(), BLOCK),](
        *(gate, up, out, out.numel(), beta or 1.0, linear_beta or 1.0),
        SITU=beta is not None,
        BOUNDED=linear_beta is not None,
        BLOCK=BLOCK,
        num_warps=WARPS,
    )
    return out
