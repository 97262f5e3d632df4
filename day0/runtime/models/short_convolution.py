"""Gated short convolution, and the plain matrix in a branch's place."""

from __future__ import annotations

import torch
from torch import nn

from day0.profile.mixers_linear import LinearMap, ShortConvolution
from day0.runtime.models.build import Build
from day0.runtime.models.context import LayerContext
from day0.runtime.models.recurrence import ShortConv, convolve


class ShortConvolutionBlock(nn.Module):
    """x [tokens, hidden] -> [tokens, hidden]: out(C * conv(B * x)), through the "conv" state of each sequence."""

    def __init__(self, spec: ShortConvolution, build: Build) -> None:
        super().__init__()
        self.ops = build.ops
        self.in_proj = build.linear(build.hidden, 3 * spec.width, spec.bias)
        self.conv = ShortConv(spec.width, spec.conv_kernel, spec.bias)
        self.out_proj = build.linear(spec.width, build.hidden, spec.bias)

    def forward(self, x: torch.Tensor, context: LayerContext) -> torch.Tensor:
        input_gate, output_gate, own = self.in_proj(x).chunk(3, dim=-1)
        convolved = convolve(self.ops["multiply"](own, input_gate), (self.conv,), None, context, self.ops)
        for name, tensor in (("input_gate", input_gate), ("conv", convolved), ("gate", output_gate)):
            context.save(f"mixer.{name}", tensor)
        return self.out_proj(self.ops["multiply"](convolved, output_gate))


class LinearMapBlock(nn.Module):
    """x [tokens, hidden] -> [tokens, hidden] by one matrix; a mixer that mixes nothing, or a feed-forward."""

    def __init__(self, spec: LinearMap, build: Build) -> None:
        super().__init__()
        self.linear = build.linear(build.hidden, build.hidden, spec.bias)

    def forward(self, x: torch.Tensor, context: LayerContext) -> torch.Tensor:
        del context
        return self.linear(x)
