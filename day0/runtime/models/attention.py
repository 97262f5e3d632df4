"""Grouped-query attention block, with what lines of models add to it."""

from __future__ import annotations

import torch
from torch import nn

from day0.profile.profile import GroupedQueryAttention, RopeSpec
from day0.runtime.batch import SequenceGroup
from day0.runtime.models.build import Build
from day0.runtime.models.context import Choice, LayerContext
from day0.runtime.models.linear import weight
from day0.runtime.models.norms import rms_norm_over_ranks


class HeadNormWeight(nn.Module):
    """The weight of a norm on queries or keys; what it means is the form's."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = weight(*shape)


class GroupedQueryBlock(nn.Module):
    """x [tokens, hidden] -> [tokens, hidden], through the "k" and "v" planes of the paged cache."""

    def __init__(self, spec: GroupedQueryAttention, build: Build) -> None:
        super().__init__()
        self.spec = spec
        self.ops = build.ops
        self.tp = build.ranks.tp
        self.norm_eps, self.plus_one = build.norm_eps, build.norm_kind == "rms_plus_one"
        hidden, query, gate = build.hidden, spec.num_heads * spec.head_dim, spec.output_gate
        self.q_proj = build.linear(hidden, 2 * query if gate is not None and gate.in_query else query, spec.qkv_bias)
        if spec.cache_of is None:
            self.k_proj = build.linear(hidden, spec.num_kv_heads * spec.head_dim, spec.qkv_bias)
            if not spec.values_are_keys:
                self.v_proj = build.linear(hidden, spec.num_kv_heads * spec.value_dim, spec.qkv_bias)
        if gate is not None and not gate.in_query:
            self.g_proj = build.linear(hidden, spec.num_heads if gate.per == "head" else spec.value_width)
        self.o_proj = build.linear(spec.value_width, hidden, spec.o_bias)
        self.sinks = weight(spec.num_heads) if spec.sinks else None
        self.q_norm = _head_norm(spec, spec.num_heads)
        self.k_norm = _head_norm(spec, spec.num_kv_heads) if spec.cache_of is None else None

    def forward(self, x: torch.Tensor, context: LayerContext) -> torch.Tensor:
        q, gate = self._queries(x)
        k = None if self.spec.cache_of is not None else self.k_proj(x).unflatten(-1, (-1, self.spec.head_dim))
        v = None if k is None else self._values(x, k)
        q, k = self._placed(q, k, context)
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            if tensor is not None:
                context.save(f"mixer.{name}", tensor)
        planes = self._planes(k, v, context)
        output = self._attend(q, *planes, self.choose(x, context), context)
        if self.spec.output_norm:
            output = self.ops["unit_rms_norm"](output, self.norm_eps)
        context.save("mixer.attention", output)
        if self.spec.output_gate is not None:
            output = self._gated(output, self.g_proj(x) if gate is None else gate, context)
        return self.o_proj(output.flatten(1))

    def choose(self, x: torch.Tensor, context: LayerContext) -> tuple[Choice, ...]:
        """What of the past each group's queries read: here all that the window lets them see."""
        del x
        return (None,) * len(context.batch.groups)

    def _queries(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Queries [tokens, heads, head_dim], and the gate [tokens, heads x head_dim] where q_proj yields both."""
        spec, q = self.spec, self.q_proj(x)
        if spec.output_gate is None or not spec.output_gate.in_query:
            return q.unflatten(-1, (-1, spec.head_dim)), None
        q, gate = q.unflatten(-1, (spec.num_heads, 2 * spec.head_dim)).chunk(2, dim=-1)
        return q, gate.flatten(1)

    def _values(self, x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        """Values [tokens, kv_heads, value_dim]; `k` is as it comes from k_proj."""
        spec = self.spec
        v = k if spec.values_are_keys else self.v_proj(x).unflatten(-1, (-1, spec.value_dim))
        if spec.value_norm:
            v = self.ops["unit_rms_norm"](v, self.norm_eps)
        return v if spec.value_scale == 1.0 else self.ops["constant_scale"](v, spec.value_scale)

    def _placed(
        self, q: torch.Tensor, k: torch.Tensor | None, context: LayerContext
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Queries and keys normed and rotated, in the spec's order; queries then grow with the position."""
        spec = self.spec
        if not spec.norm_after_rope:
            q, k = self._normed(q, k)
        if spec.rope is not None:
            q, k = self._rotated(q, k, spec.rope, context)
        if spec.norm_after_rope:
            q, k = self._normed(q, k)
        if spec.temperature is not None:
            grow = spec.temperature
            q = self.ops["query_temperature"](q, context.batch.positions, grow.floor, grow.scale, grow.offset)
        return q, k

    def _rotated(
        self, q: torch.Tensor, k: torch.Tensor | None, rope: RopeSpec, context: LayerContext
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        cos, sin = context.rotations[rope]
        if k is None:
            return self.ops["rope"](q, cos, sin, rope.layout), None
        # All heads turn alike, and decoding waits for calls more than for numbers: one call for both.
        turned = self.ops["rope"](torch.cat((q, k), dim=1), cos, sin, rope.layout)
        return turned[:, : q.shape[1]], turned[:, q.shape[1] :]

    def _normed(self, q: torch.Tensor, k: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        form = self.spec.qk_norm
        if form is None:
            return q, k
        q_weight, k_weight = (None if norm is None else norm.weight for norm in (self.q_norm, self.k_norm))
        if form == "all" and not self.tp.alone:
            return self._normed_over_ranks(q, q_weight), None if k is None else self._normed_over_ranks(k, k_weight)
        return self.ops["qk_norm"](q, k, q_weight, k_weight, self.norm_eps, form, self.plus_one)

    def _normed_over_ranks(self, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        """The norm of all heads together, of which this rank has x [tokens, heads, head_dim]."""
        assert weight is not None, "a norm over all heads has a weight"
        normed = rms_norm_over_ranks(x.flatten(1), weight, self.norm_eps, self.tp, plus_one=self.plus_one)
        return normed.view_as(x)

    def _planes(
        self, k: torch.Tensor | None, v: torch.Tensor | None, context: LayerContext
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The planes to read: this layer's own, after its new rows are written, or another layer's."""
        if k is not None and v is not None:
            return context.write("k", k), context.write("v", v)
        assert self.spec.cache_of is not None
        return context.cache.plane(self.spec.cache_of, "k"), context.cache.plane(self.spec.cache_of, "v")

    def _attend(
        self,
        q: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        choices: tuple[Choice, ...],
        context: LayerContext,
    ) -> torch.Tensor:
        """Weighted sums of values, [tokens, heads, value_dim]."""
        parts = []
        for group, choice in zip(context.batch.groups, choices, strict=True):
            queries = q[group.start : group.end].unflatten(0, (group.sequences, group.length))
            parts.append(self._attend_group(queries, k_cache, v_cache, group, choice).flatten(0, 1))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _attend_group(
        self, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, group: SequenceGroup, choice: Choice
    ) -> torch.Tensor:
        """The same of one group, [sequences, length, heads, value_dim]; this block makes no choice."""
        assert choice is None
        spec = self.spec
        plain = spec.value_dim == spec.head_dim and spec.softcap is None and not (spec.chunked or spec.sinks)
        attend = self.ops["paged_gqa_attention" if plain else "paged_gqa_attention_variant"]
        traits = () if plain else (spec.chunked, self.sinks, spec.softcap)
        output: torch.Tensor = attend(
            q, k_cache, v_cache, group.kv_slots, group.context, spec.scale, spec.window, *traits
        )
        return output

    def _gated(self, output: torch.Tensor, gate: torch.Tensor, context: LayerContext) -> torch.Tensor:
        context.save("mixer.gate", gate)
        kind = self.spec.output_gate
        assert kind is not None
        if kind.per == "head":
            return self.ops[f"head_{kind.activation}_gate"](output, gate)
        return self.ops[f"{kind.activation}_gate"](output.flatten(1), gate)


def _head_norm(spec: GroupedQueryAttention, heads: int) -> HeadNormWeight | None:
    match spec.qk_norm:
        case "head":
            return HeadNormWeight(spec.head_dim)
        case "all":
            return HeadNormWeight(heads * spec.head_dim)
        case "per_head":
            return HeadNormWeight(heads, spec.head_dim)
    return None
