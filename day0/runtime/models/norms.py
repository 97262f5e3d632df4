"""Modules of norms: one per kind that models have, and the gate that some put on what a norm gives."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from day0.profile.profile import NormKind
from day0.runtime.models.linear import Linear, RMSNorm, weight
from day0.runtime.ops.registry import Operators
from day0.runtime.parallel.ranks import Group


class PlusOneNorm(RMSNorm):
    """x [..., width] over its root mean square, its weight stored less one (Gemma)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.ops["rms_norm_plus_one"](x, self.weight, self.eps)


class LayerNorm(RMSNorm):
    """x [..., width] less its mean, over its standard deviation, times a weight."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.ops["layer_norm_without_bias"](x, self.weight, self.eps)


class BiasedLayerNorm(nn.Module):
    """The same, plus a bias."""

    def __init__(self, width: int, eps: float, ops: Operators) -> None:
        super().__init__()
        self.weight, self.bias = weight(width), weight(width)
        self.eps = eps
        self.ops = ops

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.ops["layer_norm"](x, self.weight, self.bias, self.eps)


class UnitNorm(nn.Module):
    """x [..., width] over its root mean square, without a weight."""

    def __init__(self, eps: float, ops: Operators) -> None:
        super().__init__()
        self.eps = eps
        self.ops = ops

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.ops["unit_rms_norm"](x, self.eps)


class GatedNorm(nn.Module):
    """What a norm of the hidden size gives, times sigmoid(up silu(down it)) through `rank` channels (A.X-K2)."""

    def __init__(self, norm: nn.Module, hidden: int, rank: int, ops: Operators) -> None:
        super().__init__()
        self.norm = norm
        self.gate_down = Linear(hidden, rank, ops)
        self.gate_up = Linear(rank, hidden, ops)
        self.ops = ops

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return self.ops["sigmoid_gate"](y, self.gate_up(self.ops["silu"](self.gate_down(y))))


def rms_norm_over_ranks(
    x: torch.Tensor, weight: torch.Tensor, eps: float, tp: Group, *, plus_one: bool = False
) -> torch.Tensor:
    """The RMS norm of channels that ranks have cut between them; x [tokens, own channels], weight [own channels].

    Every rank has as many channels and holds each as often as the others do: the mean of their means is that of all.
    """
    wide = x.float()
    wide = wide * torch.rsqrt(tp.mean(wide.square().mean(-1, keepdim=True)) + eps)
    return (wide * (weight.float() + (1.0 if plus_one else 0.0))).to(x.dtype)


NORMS: Mapping[NormKind, type[nn.Module]] = {
    "rms": RMSNorm,
    "rms_plus_one": PlusOneNorm,
    "layer": LayerNorm,
    "layer_bias": BiasedLayerNorm,
}
"""The module of each kind of norm, built with (width, eps, ops)."""
