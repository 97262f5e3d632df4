"""Grouped-query attention block."""

from __future__ import annotations

import torch
from torch import nn

from day0.profile.profile import GroupedQueryAttention
from day0.runtime.models.build import Build
from day0.runtime.models.context import LayerContext


class GroupedQueryBlock(nn.Module):
    """x [tokens, hidden] -> [tokens, hidden], through the "k" and "v" planes of the paged cache."""

    def __init__(self, spec: GroupedQueryAttention, build: Build) -> None:
        super().__init__()
        self.spec = spec
        self.ops = build.ops
        query, key = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        self.q_proj = build.linear(build.hidden, query, spec.qkv_bias)
        self.k_proj = build.linear(build.hidden, key, spec.qkv_bias)
        self.v_proj = build.linear(build.hidden, key, spec.qkv_bias)
        self.o_proj = build.linear(query, build.hidden, spec.o_bias)
        self.q_norm = build.norm(spec.head_dim) if spec.qk_norm else None
        self.k_norm = build.norm(spec.head_dim) if spec.qk_norm else None

    def forward(self, x: torch.Tensor, context: LayerContext) -> torch.Tensor:
        q, k, v = self._project(x, context)
        k_cache, v_cache = context.write("k", k), context.write("v", v)
        output = torch.empty_like(q)
        for group in context.batch.groups:
            rows = slice(group.start, group.end)
            attended = self.ops["paged_gqa_attention"](
                q[rows].unflatten(0, (group.sequences, group.length)),
                k_cache,
                v_cache,
                group.kv_slots,
                group.context,
                self.spec.scale,
                self.spec.window,
            )
            output[rows] = attended.flatten(0, 1)
        context.save("mixer.attention", output)
        return self.o_proj(output.flatten(1))

    def _project(self, x: torch.Tensor, context: LayerContext) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values of the new tokens, [tokens, heads, head_dim], normed and rotated."""
        head_dim = self.spec.head_dim
        q = self.q_proj(x).unflatten(-1, (-1, head_dim))
        k = self.k_proj(x).unflatten(-1, (-1, head_dim))
        v = self.v_proj(x).unflatten(-1, (-1, head_dim))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.ops["qk_norm"](q, k, self.q_norm.weight, self.k_norm.weight, self.q_norm.eps)
        if self.spec.rope is not None:
            cos, sin = context.rotations[self.spec.rope]
            q = self.ops["rope"](q, cos, sin, self.spec.rope.layout)
            k = self.ops["rope"](k, cos, sin, self.spec.rope.layout)
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            context.save(f"mixer.{name}", tensor)
        return q, k, v
