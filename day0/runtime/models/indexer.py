"""The lightning indexer: which earlier tokens each new one attends to."""

from __future__ import annotations

import torch
from torch import nn

from day0.profile.profile import IndexerSpec
from day0.runtime.batch import SequenceGroup
from day0.runtime.models.build import Build
from day0.runtime.models.context import Choice, LayerContext
from day0.runtime.models.linear import weight
from day0.runtime.ops.lightning_indexer import entry_tokens, index_scores
from day0.runtime.ops.registry import Operators


class LayerNorm(nn.Module):
    """x [..., width] less its mean over its standard deviation, with weight and bias."""

    def __init__(self, width: int, eps: float, ops: Operators) -> None:
        super().__init__()
        self.weight = weight(width)
        self.bias = weight(width)
        self.eps = eps
        self.ops = ops

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.ops["layer_norm"](x, self.weight, self.bias, self.eps)


class Indexer(nn.Module):
    """Small queries from the query latent against one key per entry, kept in the layer's "index" plane.

    With `pool` above 1 an entry is so many tokens: its key is their mean, weighed per channel by a softmax over
    projections of the hidden states plus a bias by place (GLM-5-Next). The publishers' Hadamard rotation of queries
    and keys leaves their products as they are and serves 8-bit kernels alone, so it is not here.
    """

    def __init__(self, spec: IndexerSpec, q_lora_rank: int, build: Build) -> None:
        super().__init__()
        self.spec = spec
        self.ops = build.ops
        self.q_b_proj = build.linear(q_lora_rank, spec.num_heads * spec.head_dim)
        self.k_proj = build.linear(build.hidden, spec.head_dim)
        self.k_norm = LayerNorm(spec.head_dim, spec.norm_eps, build.ops)
        self.weights_proj = build.linear(build.hidden, spec.num_heads)
        if spec.pool > 1:
            self.pool_bias = weight(spec.pool, spec.head_dim)
            self.pool_gate = weight(spec.head_dim, build.hidden)
        self.scale = spec.head_dim**-0.5 * spec.num_heads**-0.5
        # The longest context of which everything is read: of whole pools `top_k` tokens and an unfinished one.
        self.reads_all = spec.top_k + spec.pool - 1 if spec.pool == 1 or spec.pool_tail else 0

    def forward(self, x: torch.Tensor, query_latent: torch.Tensor, context: LayerContext) -> tuple[Choice, ...]:
        """The tokens that each group's new ones read; their keys are cached.

        x [tokens, hidden]; query_latent [tokens, q_lora_rank].
        """
        spec = self.spec
        q = self._turned(self.q_b_proj(query_latent).unflatten(-1, (spec.num_heads, spec.head_dim)), context)
        k = self._turned(self.k_norm(self.k_proj(x))[:, None], context)[:, 0]
        weights = self.weights_proj(x).float()
        for name, tensor in (("q", q), ("k", k), ("weights", weights)):
            context.save(f"mixer.index_{name}", tensor)
        cache = self._cache(k, x, context)
        choices = []
        for group in context.batch.groups:
            rows, shape = slice(group.start, group.end), (group.sequences, group.length)
            parts = q[rows].unflatten(0, shape), weights[rows].unflatten(0, shape)
            choices.append(self._choose(*parts, cache, group, context))
        return tuple(choices)

    def _choose(
        self, q: torch.Tensor, weights: torch.Tensor, cache: torch.Tensor, group: SequenceGroup, context: LayerContext
    ) -> Choice:
        spec, traced = self.spec, len(context.batch.groups) == 1
        slots = group.kv_slots if spec.pool == 1 else group.entries[spec.pool].slots
        if traced and context.wants("mixer.index_scores"):
            context.save("mixer.index_scores", index_scores(q, weights, cache[slots], self.scale).flatten(0, 1))
        if group.kv_slots.shape[1] <= self.reads_all:
            return None
        ids = self.ops["lightning_indexer_topk"](
            *(q, weights, cache, slots, group.context), spec.top_k // spec.pool, self.scale, spec.pool, spec.pool_tail
        )
        tokens: torch.Tensor = ids if spec.pool == 1 else entry_tokens(ids, spec.pool, group.context)
        return context.passed("mixer.topk_ids", tokens.flatten(0, 1)).view_as(tokens) if traced else tokens

    def _turned(self, x: torch.Tensor, context: LayerContext) -> torch.Tensor:
        """The first channels of each head rotated, or the last; x [tokens, heads, head_dim]."""
        rope = self.spec.rope
        if rope is None:
            return x
        cos, sin = context.rotations[rope]
        return self.ops["rope_tail" if self.spec.rope_last else "rope"](x, cos, sin, rope.layout)

    def _cache(self, k: torch.Tensor, x: torch.Tensor, context: LayerContext) -> torch.Tensor:
        """Put the new keys [tokens, head_dim], or those of the pools they finish, into the plane; gives all of it."""
        spec = self.spec
        if spec.pool == 1:
            return context.write("index", k)
        plane, tails = context.cache.plane(context.index, "index"), context.cache.state(context.index, "index_tail")
        inputs = torch.cat((k, self.ops["linear"](x, self.pool_gate)), dim=-1)
        for group in context.batch.groups:
            entries = group.entries[spec.pool]
            new = inputs[group.start : group.end].unflatten(0, (group.sequences, group.length))
            parts, tails[group.state_slots] = entries.inputs(tails[group.state_slots], new)
            keys, gates = parts.to(x.dtype).split(spec.head_dim, dim=-1)
            entries.write(plane, self.ops["gated_pool"](keys, gates, self.pool_bias, False))
        return plane
