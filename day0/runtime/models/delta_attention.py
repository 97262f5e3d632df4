"""Kimi Delta Attention block."""

from __future__ import annotations

import torch
from torch import nn

from day0.profile.profile import KimiDeltaAttention
from day0.runtime.batch import SequenceGroup
from day0.runtime.models.build import Build
from day0.runtime.models.context import LayerContext
from day0.runtime.models.linear import weight

QK_NORM_EPS = 1e-6
"""Added to the sum of squares of a query or key head before it is brought to unit length."""


class ShortConv(nn.Module):
    """Owns the taps of one depthwise causal convolution, stored [width, 1, taps]."""

    def __init__(self, width: int, taps: int) -> None:
        super().__init__()
        self.weight = weight(width, 1, taps)


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
        self.f_a_proj = build.linear(hidden, dim)
        self.f_b_proj = build.linear(dim, width)
        self.b_proj = build.linear(hidden, heads)
        self.A_log = weight(heads)
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
        projected = torch.stack((self.q_proj(x), self.k_proj(x), self.v_proj(x)), dim=1)  # [tokens, 3, width]
        z = self.f_b_proj(self.f_a_proj(x)).unflatten(-1, heads)
        g, beta = self.ops["kda_gate"](
            z, self.A_log, self.dt_bias.unflatten(0, heads), self.b_proj(x), self.spec.gate_lower_bound
        )
        for name, tensor in (("decay_in", z), ("decay", g), ("beta", beta)):
            context.save(f"mixer.{name}", tensor)
        mixed = torch.empty(x.shape[0], *heads, dtype=torch.float32, device=x.device)
        convolved = torch.empty_like(projected)
        for group in context.batch.groups:
            rows = slice(group.start, group.end)
            convolved[rows] = self._convolve(projected[rows], group, context)
            mixed[rows] = self._recur(convolved[rows], g[rows], beta[rows], group, context)
        for place, name in enumerate("qkv"):
            context.save(f"mixer.{name}_conv", convolved[:, place].unflatten(-1, heads))
        context.save("mixer.attention", mixed)
        gate = self._gate(x).unflatten(-1, heads)
        context.save("mixer.gate", gate)
        gated = self.ops["gated_rms_norm"](mixed, self.o_norm.weight, gate, self.o_norm.eps)
        context.save("mixer.gated", gated)
        return self.o_proj(gated.flatten(1).to(x.dtype))

    def _gate(self, x: torch.Tensor) -> torch.Tensor:
        return self.g_proj(x) if self.spec.full_rank_gate else self.g_b_proj(self.g_a_proj(x))

    def _convolve(self, rows: torch.Tensor, group: SequenceGroup, context: LayerContext) -> torch.Tensor:
        """q, k and v of one group after their convolutions, [rows, 3, width]; moves the states on."""
        states = context.cache.state(context.index, "conv")  # [slots, 3, width, taps - 1]
        inputs = rows.unflatten(0, (group.sequences, group.length)).flatten(2)  # the three side by side
        taps = torch.cat([conv.weight[:, 0] for conv in (self.q_conv, self.k_conv, self.v_conv)])
        past = states[group.state_slots].flatten(1, 2)
        output, new_past = self.ops["causal_conv1d"](inputs, taps, past)
        states[group.state_slots] = new_past.unflatten(1, (3, self.spec.width))
        if len(context.batch.groups) == 1:
            context.save("mixer.conv_state", states[group.state_slots][0])
        return output.flatten(0, 1).unflatten(-1, (3, self.spec.width))

    def _recur(
        self, qkv: torch.Tensor, g: torch.Tensor, beta: torch.Tensor, group: SequenceGroup, context: LayerContext
    ) -> torch.Tensor:
        """The delta rule over one group, [rows, heads, head_dim] float32; moves the states on."""
        states = context.cache.state(context.index, "recurrent")  # [slots, heads, key, value]
        shape = (group.sequences, group.length)
        heads = qkv.unflatten(-1, (self.spec.num_heads, self.spec.head_dim))
        q = self.ops["l2_norm"](heads[:, 0], QK_NORM_EPS).unflatten(0, shape)
        k = self.ops["l2_norm"](heads[:, 1], QK_NORM_EPS).unflatten(0, shape)
        v = heads[:, 2].float().unflatten(0, shape)
        # One new token is the recurrence itself; the chunked form starts to pay above it.
        operator = "kda_recurrent" if group.length == 1 else "kda_chunk"
        output, new_state = self.ops[operator](
            q,
            k,
            v,
            g.unflatten(0, shape),
            beta.unflatten(0, shape),
            states[group.state_slots],
            self.spec.head_dim**-0.5,
        )
        states[group.state_slots] = new_state
        if len(context.batch.groups) == 1:
            context.save("mixer.state", new_state[0])
        return output.flatten(0, 1)
