"""Multi-head latent attention block in absorbed form."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from day0.profile.profile import LatentAttention
from day0.runtime.batch import SequenceGroup
from day0.runtime.models.build import Build
from day0.runtime.models.context import Choice, LayerContext
from day0.runtime.models.linear import weight
from day0.runtime.ops.latent_attention import chosen_keys, masked_softmax
from day0.runtime.ops.paged_attention import visible_keys


@dataclass(frozen=True, slots=True)
class Queries:
    """What a layer makes of its new tokens on the query's side."""

    nope: torch.Tensor  # [tokens, heads, nope]
    rope: torch.Tensor  # [tokens, heads, rope], rotated if the spec says so
    latent: torch.Tensor | None  # [tokens, q_lora_rank], normed; None where queries come without one
    gate: torch.Tensor | None  # [tokens, heads x value], before its sigmoid; only where q_proj yields it


class LatentBlock(nn.Module):
    """x [tokens, hidden] -> [tokens, hidden], through the "latent" plane [slots, kv_lora_rank + qk_rope_head_dim].

    kv_b_proj's key rows are folded into the queries and its value rows applied after the weighted sum, which is
    exact and never expands the cache (DeepSeek-V2, section 2.1).
    """

    def __init__(self, spec: LatentAttention, build: Build) -> None:
        super().__init__()
        self.spec = spec
        self.ops = build.ops
        hidden, latent_eps = build.hidden, spec.latent_norm_eps
        gate = spec.output_gate
        query = spec.num_heads * (spec.qk_head_dim + (spec.v_head_dim if gate is not None and gate.in_query else 0))
        if spec.q_lora_rank is None:
            self.q_proj = build.linear(hidden, query)
        else:
            self.q_a_proj = build.linear(hidden, spec.q_lora_rank, spec.bias)
            self.q_a_norm = build.norm(spec.q_lora_rank, latent_eps)
            self.q_b_proj = build.linear(spec.q_lora_rank * (2 if spec.raw_query_latent else 1), query)
        self.kv_a_proj = build.linear(hidden, spec.kv_lora_rank + spec.qk_rope_head_dim, spec.bias)
        self.kv_a_norm = build.norm(spec.kv_lora_rank, latent_eps)
        self.k_rope_norm = build.norm(spec.qk_rope_head_dim, latent_eps) if spec.rope_key_norm else None
        self.kv_b_proj = build.linear(spec.kv_lora_rank, spec.num_heads * (spec.qk_nope_head_dim + spec.v_head_dim))
        self.kv_b_proj.is_called = False  # but for a trace
        self.sinks = weight(spec.num_heads) if spec.sinks else None
        self.g_proj = None
        if gate is not None and not gate.in_query:
            self.g_proj = build.linear(hidden, spec.num_heads if gate.per == "head" else spec.value_width)
        self.o_proj = build.linear(spec.value_width, hidden, spec.bias)
        self.query_scale = self.latent_scale = 1.0
        if spec.scaled_latents:
            assert spec.q_lora_rank is not None, "models that scale their latents have one for queries"
            self.query_scale = (hidden / spec.q_lora_rank) ** 0.5
            self.latent_scale = (hidden / spec.kv_lora_rank) ** 0.5

    def forward(self, x: torch.Tensor, context: LayerContext) -> torch.Tensor:
        queries = self._queries(x, context)
        cache = context.write("latent", self._latents(x, context))
        choices = self.choose(x, queries, context)
        key_rows, value_rows = self._absorbed()
        q_latent = self.ops["head_linear"](queries.nope, key_rows)
        attended = torch.empty_like(q_latent)
        for group, choice in zip(context.batch.groups, choices, strict=True):
            rows, shape = slice(group.start, group.end), (group.sequences, group.length)
            q = q_latent[rows].unflatten(0, shape), queries.rope[rows].unflatten(0, shape)
            attended[rows] = self._attend(*q, cache, group, choice).flatten(0, 1)
        output = self.ops["head_linear"](attended, value_rows).flatten(1)
        if context.batch.trace is not None:
            self._trace_expanded(context, torch.cat((q_latent, queries.rope), dim=-1), cache, choices)
        context.save("mixer.attention", output)
        return self.o_proj(self._gated(output, x, queries, context))

    def choose(self, x: torch.Tensor, queries: Queries, context: LayerContext) -> tuple[Choice, ...]:
        """Which of the tokens each group's queries read: here all that the window lets them see."""
        del x, queries
        return (None,) * len(context.batch.groups)

    def _attend(
        self, q_latent: torch.Tensor, q_rope: torch.Tensor, cache: torch.Tensor, group: SequenceGroup, choice: Choice
    ) -> torch.Tensor:
        """Weighted sums of latents, [sequences, length, heads, latent]."""
        spec, q = self.spec, (q_latent, q_rope)
        if choice is not None:
            return self.ops["sparse_mla_attention"](*q, cache, group.kv_slots, choice, spec.scale, self.sinks)
        if spec.window is None and self.sinks is None:
            return self.ops["paged_mla_attention"](*q, cache, group.kv_slots, group.context, spec.scale)
        return self.ops["window_mla_attention"](
            *q, cache, group.kv_slots, group.context, spec.scale, spec.window, self.sinks
        )

    def _gated(self, output: torch.Tensor, x: torch.Tensor, queries: Queries, context: LayerContext) -> torch.Tensor:
        gate = queries.gate if self.g_proj is None else self.g_proj(x)
        if gate is None:
            return output
        context.save("mixer.gate", gate)
        if gate.shape == output.shape:
            return self.ops["sigmoid_gate"](output, gate)
        return self.ops["head_sigmoid_gate"](output.unflatten(-1, (self.spec.num_heads, -1)), gate).flatten(1)

    def _queries(self, x: torch.Tensor, context: LayerContext) -> Queries:
        spec = self.spec
        latent = None
        if spec.q_lora_rank is None:
            flat = self.q_proj(x)
        else:
            raw = self.q_a_proj(x)
            latent = self.q_a_norm(raw)
            if spec.scaled_latents:
                latent = self.ops["constant_scale"](latent, self.query_scale)
            flat = self.q_b_proj(torch.cat((latent, raw), dim=-1) if spec.raw_query_latent else latent)
        heads, gate = flat.unflatten(-1, (spec.num_heads, -1)), None
        if heads.shape[-1] > spec.qk_head_dim:
            gate = heads[..., spec.qk_head_dim :].flatten(1)
        nope, rope, _ = heads.tensor_split((spec.qk_nope_head_dim, spec.qk_head_dim), dim=-1)
        if spec.rope is not None:
            cos, sin = context.rotations[spec.rope]
            rope = self.ops["rope"](rope, cos, sin, spec.rope.layout)
        if spec.temperature is not None:
            step = (spec.temperature.floor, spec.temperature.scale, spec.temperature.offset)
            nope, rope = (self.ops["query_temperature"](q, context.batch.positions, *step) for q in (nope, rope))
        context.save("mixer.q", torch.cat((nope, rope), dim=-1))
        return Queries(nope, rope, latent, gate)

    def _latents(self, x: torch.Tensor, context: LayerContext) -> torch.Tensor:
        """The new tokens' cache rows, [tokens, latent + rope]: normed latent, then the shared key slice."""
        spec = self.spec
        latent, k_rope = self.kv_a_proj(x).split((spec.kv_lora_rank, spec.qk_rope_head_dim), dim=-1)
        latent = self.kv_a_norm(latent)
        if spec.scaled_latents:
            latent = self.ops["constant_scale"](latent, self.latent_scale)
        if self.k_rope_norm is not None:
            k_rope = self.k_rope_norm(k_rope)
        if spec.rope is not None:
            cos, sin = context.rotations[spec.rope]
            k_rope = self.ops["rope"](k_rope[:, None], cos, sin, spec.rope.layout)[:, 0]
        context.save("mixer.latent", latent)
        context.save("mixer.k_rope", k_rope)
        return torch.cat((latent, k_rope), dim=-1)

    def _absorbed(self) -> tuple[torch.Tensor, torch.Tensor]:
        """kv_b_proj per head: key rows as [heads, latent, nope], value rows as [heads, value, latent]."""
        spec = self.spec
        both = self.kv_b_proj.matrix().unflatten(0, (spec.num_heads, spec.qk_nope_head_dim + spec.v_head_dim))
        keys, values = both.split((spec.qk_nope_head_dim, spec.v_head_dim), dim=1)
        return keys.transpose(1, 2), values

    def _trace_expanded(
        self, context: LayerContext, q: torch.Tensor, cache: torch.Tensor, choices: tuple[Choice, ...]
    ) -> None:
        """What the unabsorbed form would hold, for comparison with implementations that expand the latent."""
        wanted = any(context.wants(f"mixer.{name}") for name in ("k_nope", "v", "probs"))
        if len(context.batch.groups) != 1 or not wanted:
            return
        spec, group = self.spec, context.batch.groups[0]
        rows = cache[group.kv_slots].to(q.dtype)
        expanded = self.kv_b_proj(rows[0, :, : spec.kv_lora_rank])
        heads = expanded.unflatten(-1, (spec.num_heads, spec.qk_nope_head_dim + spec.v_head_dim))
        keys, values = heads.split((spec.qk_nope_head_dim, spec.v_head_dim), dim=-1)
        context.save("mixer.k_nope", keys)
        context.save("mixer.v", values)
        visible = visible_keys(group.context, group.length, group.kv_slots.shape[1], spec.window)
        if choices[0] is not None:
            visible = chosen_keys(choices[0], visible.shape[-1])
        scores = torch.einsum("qhd,sd->qhs", q[: group.length].float(), rows[0].float()) * spec.scale
        context.save("mixer.probs", masked_softmax(scores, visible[0][:, None], self.sinks).transpose(0, 1))
