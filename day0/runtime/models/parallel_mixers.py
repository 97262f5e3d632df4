"""Attention and a state space side by side."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from day0.profile.mixers_convolved import ParallelMixers
from day0.runtime.models.attention import GroupedQueryBlock
from day0.runtime.models.build import Build
from day0.runtime.models.context import LayerContext
from day0.runtime.models.mamba import Mamba2Block


class ParallelBlock(nn.Module):
    """x [tokens, hidden] -> [tokens, hidden]: the sum of what both mixers give, each between fixed factors."""

    def __init__(self, spec: ParallelMixers, build: Build) -> None:
        super().__init__()
        self.spec = spec
        self.ops = build.ops
        # A factor on the keys is one on the products: nothing comes between, as there are no norms on keys.
        assert spec.attention.qk_norm is None, "no family norms keys that it scales"
        attention = replace(spec.attention, scale=spec.attention.scale * spec.key_scale)
        self.attention = GroupedQueryBlock(attention, build)
        self.state_space = Mamba2Block(spec.state_space, build, spec.projection_scales)

    def forward(self, x: torch.Tensor, context: LayerContext) -> torch.Tensor:
        spec = self.spec
        state = self._scaled(self.state_space(self._scaled(x, spec.state_in), context), spec.state_out)
        context.save("mixer.state_space_out", state)
        attended = self._scaled(self.attention(self._scaled(x, spec.attention_in), context), spec.attention_out)
        context.save("mixer.attention_out", attended)
        return state + attended

    def _scaled(self, x: torch.Tensor, factor: float) -> torch.Tensor:
        return x if factor == 1.0 else self.ops["constant_scale"](x, factor)
