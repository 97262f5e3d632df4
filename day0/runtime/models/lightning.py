"""Lightning attention block."""

from __future__ import annotations

import torch
from torch import nn

from day0.profile.mixers_linear import LightningAttention
from day0.runtime.models.build import Build
from day0.runtime.models.context import LayerContext
from day0.runtime.models.norms import rms_norm_over_ranks
from day0.runtime.models.recurrence import recur


class LightningBlock(nn.Module):
    """x [tokens, hidden] -> [tokens, hidden], through the "recurrent" state of each sequence."""

    def __init__(self, spec: LightningAttention, build: Build) -> None:
        super().__init__()
        self.spec = spec
        self.ops = build.ops
        self.num_layers, self.tp = build.num_layers, build.ranks.tp
        hidden, width = build.hidden, spec.width
        self.in_q_proj, self.in_k_proj, self.in_v_proj = (build.linear(hidden, width) for _ in range(3))
        self.g_proj = build.linear(hidden, width)
        self.o_norm = build.rms_norm(width, spec.norm_eps)
        self.out_proj = build.linear(width, hidden)

    def forward(self, x: torch.Tensor, context: LayerContext) -> torch.Tensor:
        heads = self.spec.num_heads
        slopes = decay_slopes(heads * self.tp.size, context.index, self.num_layers)
        slope = slopes[self.tp.index * heads :][:heads].to(x.device)
        rows = []
        for name, projection in zip("qkv", (self.in_q_proj, self.in_k_proj, self.in_v_proj), strict=True):
            projected = projection(x)
            if self.spec.qkv_activation is not None:
                projected = self.ops[self.spec.qkv_activation](projected)
            rows.append(projected.unflatten(-1, (self.spec.num_heads, self.spec.head_dim)))
            context.save(f"mixer.{name}", rows[-1])

        def step(*arguments: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.ops["lightning_recurrent"](*arguments[:3], slope, arguments[3])

        def chunk(*arguments: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.ops["lightning_chunk"](*arguments[:3], slope, arguments[3])

        mixed = recur(rows, step, chunk, context).flatten(1)
        context.save("mixer.attention", mixed)
        gate = self.g_proj(x)
        context.save("mixer.gate", gate)
        return self.out_proj(self.ops["sigmoid_gate"](self._normed(mixed), gate))

    def _normed(self, mixed: torch.Tensor) -> torch.Tensor:
        if self.tp.alone:
            return self.o_norm(mixed)
        return rms_norm_over_ranks(mixed, self.o_norm.weight, self.o_norm.eps, self.tp)


def decay_slopes(num_heads: int, layer: int, num_layers: int) -> torch.Tensor:
    """How fast each head forgets, [heads] float32: 2^(-8 h / heads), h from 1, times a share that falls with depth.

    The share is 1 in the first layer and nearly 0 in the last (MiniMax-01, arXiv 2501.08313, as published with its
    weights: 1 - layer / (layers - 1 + 1e-5) + 1e-5).
    """
    heads = torch.arange(1, num_heads + 1, dtype=torch.float32)
    share = 1.0 - layer / (num_layers - 1 + 1e-5) + 1e-5
    return torch.exp2(-8.0 * heads / num_heads) * share
