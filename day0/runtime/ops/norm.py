"""Norms: statistics in float32, the result in the input's dtype."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch.nn import functional


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis (Zhang and Sennrich 2019).

    The normalised value is rounded to x's dtype before the weight is applied, as the models' own code does.
    """
    return (weight * unit_rms_norm(x, eps)).to(x.dtype)


def unit_rms_norm(x: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) over the last axis, without a weight."""
    return functional.rms_norm(x, x.shape[-1:], eps=eps)  # float32 inside, and one call


def rms_norm_plus_one(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMS norm whose weight is stored less one (Gemma); the product is rounded once, as the models' own code does."""
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (normed * (1.0 + weight.float())).to(x.dtype)


def qk_norm(
    q: torch.Tensor,
    k: torch.Tensor | None,
    q_weight: torch.Tensor | None,
    k_weight: torch.Tensor | None,
    eps: float,
    form: str = "head",
    plus_one: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """RMS norm of queries and keys; q [tokens, heads, head_dim], k with kv_heads, None in layers without keys.

    `form` is "head" (each head by one weight [head_dim]), "per_head" (each by its own, [heads, head_dim]), "all" (all
    heads together by a weight [heads x head_dim]) or "unit" (each head, no weight). `plus_one`: weights are stored
    less one.
    """
    keys = None if k is None else _head_norm(k, k_weight, eps, form, plus_one)
    return _head_norm(q, q_weight, eps, form, plus_one), keys


def _head_norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float, form: str, plus_one: bool) -> torch.Tensor:
    if weight is None:
        return unit_rms_norm(x, eps)
    norm = rms_norm_plus_one if plus_one else rms_norm
    if form == "all":
        return norm(x.flatten(-2), weight, eps).unflatten(-1, x.shape[-2:])
    return norm(x, weight, eps)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """x less its mean, over its standard deviation, times weight plus bias; float32 inside (Ba et al. 2016)."""
    wide = functional.layer_norm(x.float(), weight.shape, weight.float(), bias.float(), eps)
    return wide.to(x.dtype)


def layer_norm_without_bias(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The same without the bias (Cohere)."""
    return functional.layer_norm(x.float(), weight.shape, weight.float(), eps=eps).to(x.dtype)


def l2_norm(x: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(sum(x^2) + eps) over the last axis, in float32; eps is added to the sum, not to the mean."""
    wide = x.float()
    return wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + eps)


def gated_rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    gate: torch.Tensor,
    eps: float,
    activation: Literal["sigmoid", "silu"] = "sigmoid",
) -> torch.Tensor:
    """rms_norm(x) * activation(gate) per head, norm first; float32 inside and out. All but weight [..., head_dim]."""
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()
    return normed * _GATES[activation](gate.float())


_GATES: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {"sigmoid": torch.sigmoid, "silu": functional.silu}


def gated_group_rms_norm(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float, norm_groups: int, gate_first: bool
) -> torch.Tensor:
    """RMS norm of equal groups of channels with the gate silu(gate), before the norm or after (arXiv 2405.21060).

    All but weight [tokens, width]; float32 inside.
    """
    wide, factor = x.float(), functional.silu(gate.float())
    if gate_first:
        return _group_rms_norm(wide * factor, weight.float(), eps, norm_groups).to(x.dtype)
    return (_group_rms_norm(wide, weight.float(), eps, norm_groups) * factor).to(x.dtype)


def _group_rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, norm_groups: int) -> torch.Tensor:
    parts = x.unflatten(-1, (norm_groups, -1))
    return (parts * torch.rsqrt(parts.square().mean(-1, keepdim=True) + eps)).flatten(-2) * weight
