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


def quick_gelu(x: torch.Tensor) -> torch.Tensor:
    """x sigmoid(1.702 x) (Hendrycks and Gimpel 2016)."""
    return x * torch.sigmoid(1.702 * x)


def situ_and_mul(gate: torch.Tensor, up: torch.Tensor, beta: float, linear_beta: float | None) -> torch.Tensor:
    """beta tanh(gate / beta) sigmoid(gate) * linear_beta tanh(up / linear_beta), float32 inside (Kimi K3).

    The sigmoid takes the raw gate; `linear_beta` None leaves `up` unbounded.
    """
    wide_gate, wide_up = gate.float(), up.float()
    bounded = beta * torch.tanh(wide_gate / beta) * torch.sigmoid(wide_gate)
    if linear_beta is not None:
        wide_up = linear_beta * torch.tanh(wide_up / linear_beta)
    return (bounded * wide_up).to(gate.dtype)


def swiglu_oai_and_mul(gate: torch.Tensor, up: torch.Tensor, alpha: float, limit: float | None) -> torch.Tensor:
    """g sigmoid(alpha g) (u + 1), g clamped at `limit` from above and u on both sides; float32 inside (gpt-oss)."""
    wide_gate, wide_up = gate.float(), up.float()
    if limit is not None:
        wide_gate, wide_up = wide_gate.clamp(max=limit), wide_up.clamp(-limit, limit)
    return (wide_gate * torch.sigmoid(alpha * wide_gate) * (wide_up + 1)).to(gate.dtype)


def clamped_silu_and_mul(gate: torch.Tensor, up: torch.Tensor, limit: float) -> torch.Tensor:
    """silu(min(gate, limit)) * up clamped to +- limit (DeepSeek-V4)."""
    return functional.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)


def silu_clamped_and_mul(gate: torch.Tensor, up: torch.Tensor, limit: float) -> torch.Tensor:
    """min(silu(gate), limit) * up clamped to +- limit (Ling 3)."""
    return functional.silu(gate).clamp(max=limit) * up.clamp(-limit, limit)


def relu2(x: torch.Tensor) -> torch.Tensor:
    """max(x, 0)^2 (Primer, So et al. 2021)."""
    return functional.relu(x).square()


def softcap(x: torch.Tensor, cap: float) -> torch.Tensor:
    """cap tanh(x / cap): bounds x smoothly (Gemma 2)."""
    return cap * torch.tanh(x / cap)


def learnt_scale(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """x [tokens, width] times one learnt number, scale [1]."""
    return x * scale.to(x.dtype)


def token_sigmoid_gate(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """x [tokens, width] times sigmoid of one number per token, gate [tokens]."""
    return x * torch.sigmoid(gate)[:, None]


def softplus_gate(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """x * log(1 + exp(gate)), the factor taken in float32 (Laguna)."""
    return x * functional.softplus(gate.float()).to(x.dtype)


def head_softplus_gate(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """Every head of x [tokens, heads, head_dim] times log(1 + exp) of its number, gate [tokens, heads]."""
    return softplus_gate(x, gate[..., None])


def query_temperature(
    q: torch.Tensor, positions: torch.Tensor, floor: float, growth: float, offset: float
) -> torch.Tensor:
    """q [tokens, heads, head_dim] times 1 + growth ln(1 + floor((position + offset) / floor)) (Llama 4)."""
    steps = torch.floor((positions.float() + offset) / floor)
    return (q * (1.0 + growth * torch.log1p(steps))[:, None, None]).to(q.dtype)


def sigmoid_gate(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """x * sigmoid(gate)."""
    return x * torch.sigmoid(gate)


def head_sigmoid_gate(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """Every head's output times sigmoid of one number: x [tokens, heads, head_dim], gate [tokens, heads]."""
    return x * torch.sigmoid(gate)[..., None]


def constant_scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    """x * factor."""
    return x * factor
