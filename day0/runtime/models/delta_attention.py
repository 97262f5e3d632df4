"""Kimi Delta Attention block."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from day0.profile.profile import KimiDeltaAttention
from day0.runtime.models.build import Build
from day0.runtime.models.context import LayerContext
from day0.runtime.models.linear import weight
from day0.runtime.models.recurrence import ShortConv, convolve, recur

QK_NORM_EPS = 1e-6
"""Added to the sum of squares of a query or key head before it is brought to unit length."""


class KimiDeltaBlock(nn.Module):
    """x [tokens, hidden] -> [tokens, hidden], through the "recurrent" and "conv" states of each sequence."""

    def __init__(self, spec: KimiDeltaAttention, build: Build) -> None:
        super().__init__()
        self.spec = spec
        self.ops = build.ops
        hidden = build.hidden
        width, dim, heads = spec.width, spec.head_dim, spec.num_heads
        self.q_proj, self.k_proj, self.v_proj = (build.linear(hidden, width) for _ in range(3))
        self.q_conv, self.k_conv, self.v_conv = (ShortConv(width, spec.conv_kernel) for _ in range(3))
        if spec.full_rank_decay:
            self.f_proj = build.linear(hidden, width)
        else:
            self.f_a_proj = build.linear(hidden, dim)
            self.f_b_proj = build.linear(dim, width)
        self.b_proj = build.linear(hidden, heads)
        self.A_log = weight(*((1, 1, heads, 1) if spec.decay_rates == "four_axes" else (heads,)))
        self.dt_bias = weight(width)
        if spec.full_rank_gate:
            self.g_proj = build.linear(hidden, width)
        else:
            self.g_a_proj = build.linear(hidden, dim)
            self.g_b_proj = build.linear(dim, width)
        self.o_norm = build.rms_norm(dim, spec.norm_eps)
        self.o_proj = build.linear(width, hidden)

    def forward(self, x: torch.Tensor, context: LayerContext) -> torch.Tensor:
        heads = (self.spec.num_heads, self.spec.head_dim)
        z = (self.f_proj(x) if self.spec.full_rank_decay else self.f_b_proj(self.f_a_proj(x))).unflatten(-1, heads)
        g, beta = self.ops["kda_gate"](
            z, self.A_log.flatten(), self.dt_bias.unflatten(0, heads), self.b_proj(x), self.spec.gate_lower_bound
        )
        for name, tensor in (("decay_in", z), ("decay", g), ("beta", beta)):
            context.save(f"mixer.{name}", tensor)
        q, k, v = self._convolved(x, context)
        q, k = self.ops["l2_norm"](q, QK_NORM_EPS), self.ops["l2_norm"](k, QK_NORM_EPS)
        mixed = recur((q, k, v.float(), g, beta), self._step, self._chunk, context, self._in_place())
        context.save("mixer.attention", mixed)
        gate = self._gate(x).unflatten(-1, heads)
        context.save("mixer.gate", gate)
        gated = self.ops["gated_rms_norm"](mixed, self.o_norm.weight, gate, self.o_norm.eps, "sigmoid")
        context.save("mixer.gated", gated)
        return self.o_proj(gated.flatten(1).to(x.dtype))

    def _gate(self, x: torch.Tensor) -> torch.Tensor:
        return self.g_proj(x) if self.spec.full_rank_gate else self.g_b_proj(self.g_a_proj(x))

    def _convolved(self, x: torch.Tensor, context: LayerContext) -> tuple[torch.Tensor, ...]:
        """q, k and v [tokens, heads, head_dim] after their convolutions and silu."""
        projected = torch.cat((self.q_proj(x), self.k_proj(x), self.v_proj(x)), dim=-1)
        convolved = convolve(projected, (self.q_conv, self.k_conv, self.v_conv), "silu", context, self.ops)
        heads = convolved.unflatten(-1, (3, self.spec.num_heads, self.spec.head_dim)).unbind(1)
        for name, tensor in zip("qkv", heads, strict=True):
            context.save(f"mixer.{name}_conv", tensor)
        return heads

    def _in_place(self) -> Callable[..., torch.Tensor] | None:
        moves = self.ops.in_place.get("kda_recurrent")
        return None if moves is None else lambda *arguments: moves(*arguments, self.spec.head_dim**-0.5)

    def _step(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.ops["kda_recurrent"](*arguments, self.spec.head_dim**-0.5)

    def _chunk(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.ops["kda_chunk"](*arguments, self.spec.head_dim**-0.5)
