"""Mamba and Mamba-2 blocks."""

from __future__ import annotations

import torch
from torch import nn

from day0.profile.mixers_linear import Mamba, Mamba2
from day0.runtime.models.build import Build
from day0.runtime.models.context import LayerContext
from day0.runtime.models.linear import weight
from day0.runtime.models.recurrence import ShortConv, convolve, recur


class MambaBlock(nn.Module):
    """x [tokens, hidden] -> [tokens, hidden], through the "recurrent" and "conv" states of each sequence."""

    def __init__(self, spec: Mamba, build: Build) -> None:
        super().__init__()
        self.spec = spec
        self.ops = build.ops
        self.tp = build.ranks.tp
        hidden, width, state, rank = build.hidden, spec.width, spec.state_size, spec.step_rank
        self.in_proj = build.linear(hidden, 2 * width, spec.proj_bias)
        self.conv = ShortConv(width, spec.conv_kernel, spec.conv_bias)
        self.x_proj = build.linear(width, rank + 2 * state)
        self.dt_proj = build.linear(rank, width, bias=True)
        self.dt_proj.is_called = False
        self.A_log, self.D = weight(width, state), weight(width)
        self.dt_norm, self.b_norm, self.c_norm = (
            build.rms_norm(size, spec.norm_eps) if spec.inner_norms else None for size in (rank, state, state)
        )
        self.out_proj = build.linear(width, hidden, spec.proj_bias)

    def forward(self, x: torch.Tensor, context: LayerContext) -> torch.Tensor:
        spec = self.spec
        own, gate = self.in_proj(x).chunk(2, dim=-1)
        own = convolve(own, (self.conv,), "silu", context, self.ops)
        context.save("mixer.conv", own)
        low, b, c = self.tp.sum(self.x_proj(own)).split((spec.step_rank, spec.state_size, spec.state_size), dim=-1)
        if self.dt_norm is not None and self.b_norm is not None and self.c_norm is not None:
            low, b, c = self.dt_norm(low), self.b_norm(b), self.c_norm(c)
        # The bias is added inside the scan, in float32.
        dt = self.ops["linear"](low, self.dt_proj.matrix(), None)
        for name, tensor in (("steps_in", dt), ("b", b), ("c", c), ("gate", gate)):
            context.save(f"mixer.{name}", tensor)
        mixed = recur((own, dt, gate, b, c), self._step, self._chunk, context)
        context.save("mixer.gated", mixed)
        return self.out_proj(mixed)

    def _step(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        *rows, state = arguments
        return self.ops["selective_state_update"](*rows, self.A_log, self.D, self.dt_proj.bias, state)

    def _chunk(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        *rows, state = arguments
        return self.ops["selective_scan"](*rows, self.A_log, self.D, self.dt_proj.bias, state)


class Mamba2Block(nn.Module):
    """x [tokens, hidden] -> [tokens, hidden], through the "recurrent" and "conv" states of each sequence.

    `factors` are fixed numbers on the five parts of the input projection: gate, x, B, C and step sizes.
    """

    def __init__(self, spec: Mamba2, build: Build, factors: tuple[float, ...] = (1.0,) * 5) -> None:
        super().__init__()
        self.spec = spec
        self.ops = build.ops
        self.factors = factors
        hidden, heads = build.hidden, spec.num_heads
        self.in_proj = build.linear(hidden, spec.projection_width, spec.proj_bias)
        self.conv = ShortConv(spec.conv_width, spec.conv_kernel, spec.conv_bias)
        self.A_log, self.D, self.dt_bias = (weight(heads) for _ in range(3))
        self.norm = build.rms_norm(spec.width, spec.norm_eps) if spec.norm else None
        self.out_proj = build.linear(spec.width, hidden, spec.proj_bias)

    def forward(self, x: torch.Tensor, context: LayerContext) -> torch.Tensor:
        spec, grouped = self.spec, (self.spec.num_groups, self.spec.state_size)
        gate, own, dt = self._projected(x).split((spec.width, spec.conv_width, spec.num_heads), dim=-1)
        own = convolve(own, (self.conv,), "silu", context, self.ops)
        shared = spec.num_groups * spec.state_size
        heads, b, c = own.split((spec.width, shared, shared), dim=-1)
        heads = heads.unflatten(-1, (spec.num_heads, spec.head_dim))
        b, c = b.unflatten(-1, grouped), c.unflatten(-1, grouped)
        for name, tensor in (("conv", heads), ("steps_in", dt), ("b", b), ("c", c)):
            context.save(f"mixer.{name}", tensor)
        mixed = recur((heads, dt, b, c), self._step, self._chunk, context)
        context.save("mixer.scan", mixed)
        context.save("mixer.gate", gate)
        gated = self._gated(mixed.flatten(1), gate)
        context.save("mixer.gated", gated)
        return self.out_proj(gated)

    def _projected(self, x: torch.Tensor) -> torch.Tensor:
        """Gate, x, B, C and step sizes side by side, [tokens, projection_width]."""
        projected, spec = self.in_proj(x), self.spec
        if all(factor == 1.0 for factor in self.factors):
            return projected
        shared = spec.num_groups * spec.state_size
        sizes = torch.tensor((spec.width, spec.width, shared, shared, spec.num_heads), device=x.device)
        return self.ops["multiply"](projected, x.new_tensor(self.factors).repeat_interleave(sizes))

    def _gated(self, mixed: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        if self.norm is None:
            return self.ops["silu_and_mul"](gate, mixed)
        return self.ops["gated_group_rms_norm"](
            mixed, gate, self.norm.weight, self.norm.eps, self.spec.num_groups, not self.spec.norm_first
        )

    def _step(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self._run("ssd_state_update", *arguments)

    def _chunk(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self._run("ssd_chunk_scan", *arguments)

    def _run(self, operator: str, *arguments: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        *rows, state = arguments
        return self.ops[operator](*rows, self.A_log, self.D, self.dt_bias, state, *self.spec.step_limit)
