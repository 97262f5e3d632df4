"""Gates of gated linear units, and the gate on an attention output."""

from __future__ import annotations

import torch
from torch.nn import functional


def silu_and_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up (SwiGLU, Shazeer 2020)."""
    return functional.silu(gate) * up


def gelu_and_mul(gate: torch.Tensor, up: torch.Tensor, approximate: str) -> torch.Tensor:
    """gelu(gate) * up; `approximate` is "erf" (exact) or "tanh"."""
    return gelu(gate, approximate) * up


def gelu(x: torch.Tensor, approximate: str) -> torch.Tensor:
    """Gaussian error linear unit (Hendrycks and Gimpel 2016); `approximate` is "erf" (exact) or "tanh"."""
    return functional.gelu(x, approximate={"erf": "none", "tanh": "tanh"}[approximate])


def situ_and_mul(gate: torch.Tensor, up: torch.Tensor, beta: float, linear_beta: float | None) -> torch.Tensor:
    """beta tanh(gate / beta) sigmoid(gate) * linear_beta tanh(up / linear_beta), float32 inside (Kimi K3).

    The sigmoid takes the raw gate; `linear_beta` None leaves `up` unbounded.
    """
    wide_gate, wide_up = gate.float(), up.float()
    bounded = beta * torch.tanh(wide_gate / beta) * torch.sigmoid(wide_gate)
    if linear_beta is not None:
        wide_up = linear_beta * torch.tanh(wide_up / linear_beta)
    return (bounded * wide_up).to(gate.dtype)


def sigmoid_gate(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """x * sigmoid(gate)."""
    return x * torch.sigmoid(gate)


def head_sigmoid_gate(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """Every head's output times sigmoid of one number: x [tokens, heads, head_dim], gate [tokens, heads]."""
    return x * torch.sigmoid(gate)[..., None]


def constant_scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    """x * factor."""
    return x * factor
