"""Dense gated MLP, and the gate functions shared with the experts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from day0.profile.profile import ActivationSpec, DenseFeedForward
from day0.runtime.models.build import Build
from day0.runtime.models.context import LayerContext
from day0.runtime.ops.registry import Operators

GateFunction = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def gate_function(spec: ActivationSpec, ops: Operators) -> GateFunction:
    """The function of (gate, up) that a spec names."""
    match spec.name:
        case "silu":
            return ops["silu_and_mul"]
        case "gelu":
            return partial(ops["gelu_and_mul"], approximate="erf")
        case "gelu_tanh":
            return partial(ops["gelu_and_mul"], approximate="tanh")
        case "situ":
            assert spec.beta is not None, "the config reader gives SiTU its beta"
            return partial(ops["situ_and_mul"], beta=spec.beta, linear_beta=spec.linear_beta)
    raise AssertionError(f"{spec.name} passed models/support.py but has no function here")


class GatedMLP(nn.Module):
    """down(act(gate x) * up x), x [tokens, hidden]."""

    def __init__(self, width: int, activation: ActivationSpec, build: Build, bias: bool = False) -> None:
        super().__init__()
        self.gate_proj = build.linear(build.hidden, width, bias)
        self.up_proj = build.linear(build.hidden, width, bias)
        self.down_proj = build.linear(width, build.hidden, bias)
        self.activation = gate_function(activation, build.ops)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.activation(self.gate_proj(x), self.up_proj(x)))


class DenseBlock(GatedMLP):
    """A gated MLP as a layer's feed-forward."""

    def __init__(self, spec: DenseFeedForward, build: Build) -> None:
        super().__init__(spec.width, spec.activation, build, spec.bias)

    def forward(self, x: torch.Tensor, context: LayerContext) -> torch.Tensor:  # type: ignore[override]
        del context
        return super().forward(x)
