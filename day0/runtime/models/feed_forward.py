"""Dense MLPs, gated or not, and the activations shared with the experts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from day0.profile.profile import ActivationSpec, DenseFeedForward
from day0.runtime.models.build import Build
from day0.runtime.models.context import LayerContext
from day0.runtime.models.linear import weight
from day0.runtime.ops.registry import Operators

Activation = Callable[..., torch.Tensor]
"""Of (gate, up), or of up alone."""


def gate_function(spec: ActivationSpec, ops: Operators) -> Activation:
    """The function of (gate, up) that a spec names."""
    match spec.name:
        case "silu" if spec.limit is not None:
            return partial(ops["clamped_silu_and_mul"], limit=spec.limit)
        case "silu":
            return ops["silu_and_mul"]
        case "silu_clamped":
            return partial(ops["silu_clamped_and_mul"], limit=spec.limit)
        case "swiglu_oai":
            return partial(ops["swiglu_oai_and_mul"], alpha=spec.alpha, limit=spec.limit)
        case "gelu":
            return partial(ops["gelu_and_mul"], approximate="erf")
        case "gelu_tanh":
            return partial(ops["gelu_and_mul"], approximate="tanh")
        case "situ":
            assert spec.beta is not None, "the config reader gives SiTU its beta"
            return partial(ops["situ_and_mul"], beta=spec.beta, linear_beta=spec.linear_beta)
    raise AssertionError(f"{spec.name} passed models/support.py but has no gated function here")


def plain_function(spec: ActivationSpec, ops: Operators) -> Activation:
    """The function of up alone that a spec names."""
    match spec.name:
        case "relu2" | "silu":
            return ops[spec.name]
        case "gelu":
            return partial(ops["gelu"], approximate="erf")
        case "gelu_tanh":
            return partial(ops["gelu"], approximate="tanh")
    raise AssertionError(f"{spec.name} passed models/support.py but has no plain function here")


class MLP(nn.Module):
    """down(act(gate x) * up x), or down(act(up x)) where it is not gated; x [tokens, hidden]."""

    def __init__(self, spec: DenseFeedForward, build: Build) -> None:
        super().__init__()
        self.spec = spec
        self.ops = build.ops
        self.gate_proj = build.linear(build.hidden, spec.width, spec.bias) if spec.gated else None
        self.up_proj = build.linear(build.hidden, spec.width, spec.bias)
        self.down_proj = build.linear(spec.width, build.hidden, spec.bias)
        self.activation = (gate_function if spec.gated else plain_function)(spec.activation, build.ops)
        self.global_scale = weight(1) if spec.global_scale else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output = self.down_proj(self._inner(x))
        if self.spec.down_scale != 1.0:
            output = self.ops["constant_scale"](output, self.spec.down_scale)
        return output if self.global_scale is None else self.ops["learnt_scale"](output, self.global_scale)

    def _inner(self, x: torch.Tensor) -> torch.Tensor:
        up = self.up_proj(x)
        read = up if self.gate_proj is None else self.gate_proj(x)
        if self.spec.gate_scale != 1.0:
            read = self.ops["constant_scale"](read, self.spec.gate_scale)
        return self.activation(read) if self.gate_proj is None else self.activation(read, up)


class DenseBlock(MLP):
    """An MLP as a layer's feed-forward."""

    def forward(self, x: torch.Tensor, context: LayerContext) -> torch.Tensor:  # type: ignore[override]
        del context
        return super().forward(x)
