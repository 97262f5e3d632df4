"""Multi-head latent attention block, in absorbed form: the cache holds one latent per token for all heads."""

from __future__ import annotations

import torch
from torch import nn

from day0.profile.profile import LatentAttention
from day0.runtime.models.build import Build
from day0.runtime.models.context import LayerContext
from day0.runtime.ops.paged_attention import attention_weights, visible_keys


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
        query, value = spec.num_heads * spec.qk_head_dim, spec.num_heads * spec.v_head_dim
        if spec.q_lora_rank is None:
            self.q_proj = build.linear(hidden, query)
        else:
            self.q_a_proj = build.linear(hidden, spec.q_lora_rank)
            self.q_a_norm = build.norm(spec.q_lora_rank, latent_eps)
            self.q_b_proj = build.linear(spec.q_lora_rank, query)
        self.kv_a_proj = build.linear(hidden, spec.kv_lora_rank + spec.qk_rope_head_dim)
        self.kv_a_norm = build.norm(spec.kv_lora_rank, latent_eps)
        self.kv_b_proj = build.linear(spec.kv_lora_rank, spec.num_heads * (spec.qk_nope_head_dim + spec.v_head_dim))
        self.g_proj = build.linear(hidden, value) if spec.output_gate else None
        self.o_proj = build.linear(value, hidden)

    def forward(self, x: torch.Tensor, context: LayerContext) -> torch.Tensor:
        spec = self.spec
        q_nope, q_rope = self._queries(x, context)
        cache = context.write("latent", self._latents(x, context))
        key_rows, value_rows = self._absorbed()
        q_latent = self.ops["head_linear"](q_nope, key_rows)
        attended = torch.empty_like(q_latent)
        for group in context.batch.groups:
            rows, shape = slice(group.start, group.end), (group.sequences, group.length)
            output = self.ops["paged_mla_attention"](
                q_latent[rows].unflatten(0, shape),
                q_rope[rows].unflatten(0, shape),
                cache,
                group.kv_slots,
                group.context,
                spec.scale,
            )
            attended[rows] = output.flatten(0, 1)
        output = self.ops["head_linear"](attended, value_rows).flatten(1)
        if context.batch.trace is not None:
            self._trace_expanded(context, q_latent, q_rope, cache)
        context.save("mixer.attention", output)
        if self.g_proj is not None:
            gate = self.g_proj(x)
            context.save("mixer.gate", gate)
            output = self.ops["sigmoid_gate"](output, gate)
        return self.o_proj(output)

    def _queries(self, x: torch.Tensor, context: LayerContext) -> tuple[torch.Tensor, torch.Tensor]:
        """Per-head queries [tokens, heads, nope] and [tokens, heads, rope], the latter rotated if the spec says so."""
        spec = self.spec
        if spec.q_lora_rank is None:
            flat = self.q_proj(x)
        else:
            flat = self.q_b_proj(self.q_a_norm(self.q_a_proj(x)))
        q = flat.unflatten(-1, (spec.num_heads, spec.qk_head_dim))
        q_nope, q_rope = q.split((spec.qk_nope_head_dim, spec.qk_rope_head_dim), dim=-1)
        if spec.rope is not None:
            cos, sin = context.rotations[spec.rope]
            q_rope = self.ops["rope"](q_rope, cos, sin, spec.rope.layout)
        context.save("mixer.q", torch.cat((q_nope, q_rope), dim=-1))
        return q_nope, q_rope

    def _latents(self, x: torch.Tensor, context: LayerContext) -> torch.Tensor:
        """The new tokens' cache rows, [tokens, latent + rope]: normed latent, then the shared key slice."""
        spec = self.spec
        latent, k_rope = self.kv_a_proj(x).split((spec.kv_lora_rank, spec.qk_rope_head_dim), dim=-1)
        latent = self.kv_a_norm(latent)
        if spec.rope is not None:
            cos, sin = context.rotations[spec.rope]
            k_rope = self.ops["rope"](k_rope[:, None], cos, sin, spec.rope.layout)[:, 0]
        context.save("mixer.latent", latent)
        context.save("mixer.k_rope", k_rope)
        return torch.cat((latent, k_rope), dim=-1)

    def _absorbed(self) -> tuple[torch.Tensor, torch.Tensor]:
        """kv_b_proj per head: key rows as [heads, latent, nope], value rows as [heads, value, latent]."""
        spec = self.spec
        both = self.kv_b_proj.weight.unflatten(0, (spec.num_heads, spec.qk_nope_head_dim + spec.v_head_dim))
        keys, values = both.split((spec.qk_nope_head_dim, spec.v_head_dim), dim=1)
        return keys.transpose(1, 2), values

    def _trace_expanded(
        self, context: LayerContext, q_latent: torch.Tensor, q_rope: torch.Tensor, cache: torch.Tensor
    ) -> None:
        """What the unabsorbed form would hold, for comparison with implementations that expand the latent."""
        wanted = any(context.wants(f"mixer.{name}") for name in ("k_nope", "v", "probs"))
        if len(context.batch.groups) != 1 or not wanted:
            return
        spec, group = self.spec, context.batch.groups[0]
        rows = cache[group.kv_slots].to(q_latent.dtype)
        expanded = self.kv_b_proj(rows[0, :, : spec.kv_lora_rank])
        heads = expanded.unflatten(-1, (spec.num_heads, spec.qk_nope_head_dim + spec.v_head_dim))
        keys, values = heads.split((spec.qk_nope_head_dim, spec.v_head_dim), dim=-1)
        context.save("mixer.k_nope", keys)
        context.save("mixer.v", values)
        q = torch.cat((q_latent, q_rope), dim=-1).unflatten(0, (group.sequences, group.length))
        visible = visible_keys(group.context, group.length, group.kv_slots.shape[1], None)
        context.save("mixer.probs", attention_weights(q, rows[:, :, None], visible, spec.scale)[0, 0])
