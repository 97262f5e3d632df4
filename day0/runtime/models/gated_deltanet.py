"""Gated DeltaNet block."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from day0.profile.mixers_linear import GatedDeltaNet
from day0.runtime.models.build import Build
from day0.runtime.models.context import LayerContext
from day0.runtime.models.linear import weight
from day0.runtime.models.recurrence import ShortConv, convolve, recur

QK_NORM_EPS = 1e-6
"""Added to the sum of squares of a query or key head before it is brought to unit length."""


class GatedDeltaNetBlock(nn.Module):
    """x [tokens, hidden] -> [tokens, hidden], through the "recurrent" and "conv" states of each sequence."""

    def __init__(self, spec: GatedDeltaNet, build: Build) -> None:
        super().__init__()
        self.spec = spec
        self.ops = build.ops
        hidden, heads = build.hidden, spec.num_value_heads
        self.in_q_proj, self.in_k_proj = (build.linear(hidden, spec.key_width) for _ in "qk")
        self.in_v_proj, self.in_z_proj = (build.linear(hidden, spec.value_width) for _ in "vz")
        self.in_b_proj, self.in_a_proj = (build.linear(hidden, heads) for _ in "ba")
        self.q_conv, self.k_conv = (ShortConv(spec.key_width, spec.conv_kernel) for _ in "qk")
        self.v_conv = ShortConv(spec.value_width, spec.conv_kernel)
        self.A_log, self.dt_bias = weight(heads), weight(heads)
        self.o_norm = build.rms_norm(spec.value_head_dim, spec.norm_eps)
        self.out_proj = build.linear(spec.value_width, hidden)

    def forward(self, x: torch.Tensor, context: LayerContext) -> torch.Tensor:
        values = (self.spec.num_value_heads, self.spec.value_head_dim)
        a = self.in_a_proj(x)
        strength = 2.0 if self.spec.negative_eigenvalues else 1.0
        g, beta = self.ops["gated_delta_gate"](a, self.A_log, self.dt_bias, self.in_b_proj(x), strength)
        for name, tensor in (("decay_in", a), ("decay", g), ("beta", beta)):
            context.save(f"mixer.{name}", tensor)
        q, k, v = self._convolved(x, context)
        q, k = self.ops["l2_norm"](q, QK_NORM_EPS), self.ops["l2_norm"](k, QK_NORM_EPS)
        mixed = recur((q, k, v, g, beta), self._step, self._chunk, context, self._in_place())
        context.save("mixer.attention", mixed)
        gate = self.in_z_proj(x).unflatten(-1, values)
        context.save("mixer.gate", gate)
        gated = self.ops["gated_rms_norm"](mixed, self.o_norm.weight, gate, self.o_norm.eps, "silu")
        context.save("mixer.gated", gated)
        return self.out_proj(gated.flatten(1).to(x.dtype))

    def _convolved(self, x: torch.Tensor, context: LayerContext) -> tuple[torch.Tensor, ...]:
        """q, k and v [tokens, heads, head_dim] after their convolutions and silu."""
        spec = self.spec
        projected = torch.cat((self.in_q_proj(x), self.in_k_proj(x), self.in_v_proj(x)), dim=-1)
        convolved = convolve(projected, (self.q_conv, self.k_conv, self.v_conv), "silu", context, self.ops)
        q, k, v = convolved.split((spec.key_width, spec.key_width, spec.value_width), dim=-1)
        heads = (
            q.unflatten(-1, (spec.num_key_heads, spec.key_head_dim)),
            k.unflatten(-1, (spec.num_key_heads, spec.key_head_dim)),
            v.unflatten(-1, (spec.num_value_heads, spec.value_head_dim)),
        )
        for name, tensor in zip("qkv", heads, strict=True):
            context.save(f"mixer.{name}_conv", tensor)
        return heads

    def _in_place(self) -> Callable[..., torch.Tensor] | None:
        moves = self.ops.in_place.get("gated_delta_recurrent")
        return None if moves is None else lambda *arguments: moves(*arguments, self.spec.key_head_dim**-0.5)

    def _step(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.ops["gated_delta_recurrent"](*arguments, self.spec.key_head_dim**-0.5)

    def _chunk(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.ops["gated_delta_chunk"](*arguments, self.spec.key_head_dim**-0.5)
