"""DeepSeek-V4's attention blocks: a window of shared keys and values, and the past compressed beside it."""

from __future__ import annotations

import torch
from torch import nn

from day0.profile.profile import (
    CompressedSparseAttention,
    HeavilyCompressedAttention,
    IndexerSpec,
    RopeSpec,
    SharedKeyValueAttention,
)
from day0.runtime.batch import SequenceGroup
from day0.runtime.models.build import Build
from day0.runtime.models.context import LayerContext
from day0.runtime.models.linear import weight
from day0.runtime.ops.lightning_indexer import index_scores
from day0.runtime.ops.rope import rope_frequencies, rope_table


class Compressor(nn.Module):
    """Every `ratio` tokens become one entry of `dim` channels, kept in a plane and its tail.

    An entry is a per-channel weighted mean of projections of its tokens, and with `overlap` of those before them by a
    second projection; it is normed, and turned by the place of its first own token.
    """

    def __init__(
        self, plane: str, dim: int, ratio: int, rope: RopeSpec, eps: float, build: Build, *, overlap: bool
    ) -> None:
        super().__init__()
        self.plane, self.ratio, self.rope, self.overlap = plane, ratio, rope, overlap
        self.point = "mixer.index_k" if plane == "index" else f"mixer.{plane}"
        self.ops = build.ops
        width = 2 * dim if overlap else dim
        self.kv_proj = build.linear(build.hidden, width)
        self.gate_proj = build.linear(build.hidden, width)
        self.position_bias = weight(ratio, width)
        self.norm = build.rms_norm(dim, eps)

    def forward(self, x: torch.Tensor, context: LayerContext) -> torch.Tensor:
        """Puts the entries that x [tokens, hidden] completes into the plane; gives all of it."""
        plane = context.cache.plane(context.index, self.plane)
        tails = context.cache.state(context.index, f"{self.plane}_tail")
        projected = torch.cat((self.kv_proj(x), self.gate_proj(x)), dim=-1)
        for group in context.batch.groups:
            entries = group.entries[self.ratio]
            new = projected[group.start : group.end].unflatten(0, (group.sequences, group.length))
            inputs, tails[group.state_slots] = entries.inputs(tails[group.state_slots], new)
            entries.write(plane, self._compress(inputs.to(x.dtype), entries.done_number))
            if len(context.batch.groups) == 1 and context.wants(self.point):
                context.save(self.point, entries.gather(plane).flatten(0, 1))
        return plane

    def _compress(self, inputs: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """inputs [done, tokens, projections and gates] -> entries [done, dim]; `numbers` [done] say which they are."""
        values, gates = inputs.chunk(2, dim=-1)
        pooled = self.ops["gated_pool"](values, gates, self.position_bias, self.overlap, numbers == 0)
        spec = self.rope
        frequencies, factor = rope_frequencies(spec.theta, spec.dim, spec.scaling, dict(spec.parameters))
        cos, sin = rope_table(numbers * self.ratio, frequencies.to(numbers.device), factor)
        return self.ops["rope_tail"](self.norm(pooled)[:, None], cos, sin, spec.layout)[:, 0]


class SharedKeyValueBlock(nn.Module):
    """x [tokens, hidden] -> [tokens, hidden], through the "shared_kv" plane [slots, head_dim]."""

    def __init__(self, spec: SharedKeyValueAttention, build: Build) -> None:
        super().__init__()
        self.spec = spec
        self.ops = build.ops
        hidden, width, eps = build.hidden, spec.num_heads * spec.head_dim, spec.norm_eps
        self.q_a_proj = build.linear(hidden, spec.q_lora_rank)
        self.q_a_norm = build.rms_norm(spec.q_lora_rank, eps)
        self.q_b_proj = build.linear(spec.q_lora_rank, width)
        self.q_norm = build.unit_norm(eps)
        self.kv_proj = build.linear(hidden, spec.head_dim)
        self.kv_norm = build.rms_norm(spec.head_dim, eps)
        self.sinks = weight(spec.num_heads)
        self.o_a_proj = build.linear(width // spec.o_groups, spec.o_groups * spec.o_lora_rank)
        self.o_a_proj.is_called = False
        self.o_b_proj = build.linear(spec.o_groups * spec.o_lora_rank, hidden)

    def forward(self, x: torch.Tensor, context: LayerContext) -> torch.Tensor:
        spec = self.spec
        cos, sin = context.rotations[spec.rope]
        latent = self.q_a_norm(self.q_a_proj(x))
        q = self.q_norm(self.q_b_proj(latent).unflatten(-1, (spec.num_heads, spec.head_dim)))
        q = self.ops["rope_tail"](q, cos, sin, spec.rope.layout)
        kv = self.ops["rope_tail"](self.kv_norm(self.kv_proj(x))[:, None], cos, sin, spec.rope.layout)[:, 0]
        context.save("mixer.q", q)
        context.save("mixer.kv", kv)
        output = self._attend(q, context.write("shared_kv", kv), x, latent, context)
        # Values were turned with the keys: turning back by the query's place leaves the distance between the two.
        output = self.ops["rope_tail"](output, cos, sin, spec.rope.layout, True)
        context.save("mixer.attention", output)
        groups = self.o_a_proj.matrix().unflatten(0, (spec.o_groups, spec.o_lora_rank))
        mixed = self.ops["head_linear"](output.flatten(1).unflatten(-1, (spec.o_groups, -1)), groups)
        return self.o_b_proj(mixed.flatten(1))

    def _attend(
        self, q: torch.Tensor, cache: torch.Tensor, x: torch.Tensor, latent: torch.Tensor, context: LayerContext
    ) -> torch.Tensor:
        """Weighted sums of cached vectors, [tokens, heads, head_dim]."""
        output = torch.empty_like(q)
        past = self._past(x, latent, context)
        for number, group in enumerate(context.batch.groups):
            rows = slice(group.start, group.end)
            own = q[rows].unflatten(0, (group.sequences, group.length))
            output[rows] = self._attend_group(own, cache, past, group, number).flatten(0, 1)
        return output

    def _past(self, x: torch.Tensor, latent: torch.Tensor, context: LayerContext) -> tuple[torch.Tensor, ...]:
        """What is read beside the window, once it is brought up to date: here nothing."""
        del x, latent, context
        return ()

    def _attend_group(
        self, q: torch.Tensor, cache: torch.Tensor, past: tuple[torch.Tensor, ...], group: SequenceGroup, number: int
    ) -> torch.Tensor:
        del past, number
        spec = self.spec
        return self.ops["shared_kv_attention"](
            q, cache, self.sinks, group.kv_slots, group.context, spec.scale, spec.window
        )


class HeavilyCompressedBlock(SharedKeyValueBlock):
    """The same with all of the "compressed_kv" plane's finished entries beside the window."""

    def __init__(self, spec: HeavilyCompressedAttention, build: Build) -> None:
        super().__init__(spec.attention, build)
        own = spec.attention
        self.ratio = spec.ratio
        self.compressor = Compressor(
            "compressed_kv", own.head_dim, spec.ratio, own.rope, own.norm_eps, build, overlap=False
        )

    def _past(self, x: torch.Tensor, latent: torch.Tensor, context: LayerContext) -> tuple[torch.Tensor, ...]:
        del latent
        return (self.compressor(x, context),)

    def _attend_group(
        self, q: torch.Tensor, cache: torch.Tensor, past: tuple[torch.Tensor, ...], group: SequenceGroup, number: int
    ) -> torch.Tensor:
        del number
        spec, entry_slots = self.spec, group.entries[self.ratio].slots
        return self.ops["hca_attention"](
            *(q, cache, past[0], self.sinks, group.kv_slots, entry_slots, group.context),
            *(spec.scale, spec.window, self.ratio),
        )


class CompressedIndexer(nn.Module):
    """Chooses compressed entries by small keys of their own, compressed alike into the "index" plane."""

    def __init__(self, spec: IndexerSpec, attention: SharedKeyValueAttention, ratio: int, build: Build) -> None:
        super().__init__()
        self.spec, self.ratio, self.rope = spec, ratio, attention.rope
        self.ops = build.ops
        self.q_b_proj = build.linear(attention.q_lora_rank, spec.num_heads * spec.head_dim)
        self.weights_proj = build.linear(build.hidden, spec.num_heads)
        self.compressor = Compressor("index", spec.head_dim, ratio, attention.rope, spec.norm_eps, build, overlap=True)
        self.scale = spec.head_dim**-0.5 * spec.num_heads**-0.5

    def forward(self, x: torch.Tensor, latent: torch.Tensor, context: LayerContext) -> tuple[torch.Tensor, ...]:
        """Numbers of the chosen entries by group, [sequences, length, chosen] int64, -1 for none."""
        spec = self.spec
        q = self.q_b_proj(latent).unflatten(-1, (spec.num_heads, spec.head_dim))
        q = self.ops["rope_tail"](q, *context.rotations[self.rope], self.rope.layout)
        weights = self.weights_proj(x).float()
        context.save("mixer.index_q", q)
        context.save("mixer.index_weights", weights)
        plane = self.compressor(x, context)
        chosen = []
        for group in context.batch.groups:
            rows, shape = slice(group.start, group.end), (group.sequences, group.length)
            own, share = q[rows].unflatten(0, shape), weights[rows].unflatten(0, shape)
            slots = group.entries[self.ratio].slots
            chosen.append(
                self.ops["lightning_indexer_topk"](
                    *(own, share, plane, slots, group.context, spec.top_k, self.scale, self.ratio)
                )
            )
            if len(context.batch.groups) == 1:
                if context.wants("mixer.index_scores"):
                    context.save("mixer.index_scores", index_scores(own, share, plane[slots], self.scale).flatten(0, 1))
                context.save("mixer.topk_ids", chosen[-1].flatten(0, 1))
        return tuple(chosen)


class CompressedSparseBlock(SharedKeyValueBlock):
    """The same with those entries of the "compressed_kv" plane beside the window that an indexer chose."""

    def __init__(self, spec: CompressedSparseAttention, build: Build) -> None:
        super().__init__(spec.attention, build)
        own = spec.attention
        self.ratio = spec.ratio
        self.compressor = Compressor(
            "compressed_kv", own.head_dim, spec.ratio, own.rope, own.norm_eps, build, overlap=True
        )
        self.indexer = CompressedIndexer(spec.indexer, own, spec.ratio, build)

    def _past(self, x: torch.Tensor, latent: torch.Tensor, context: LayerContext) -> tuple[torch.Tensor, ...]:
        """The plane, then each group's choice."""
        return self.compressor(x, context), *self.indexer(x, latent, context)

    def _attend_group(
        self, q: torch.Tensor, cache: torch.Tensor, past: tuple[torch.Tensor, ...], group: SequenceGroup, number: int
    ) -> torch.Tensor:
        spec, entry_slots = self.spec, group.entries[self.ratio].slots
        return self.ops["csa_attention"](
            *(q, cache, past[0], past[1 + number], self.sinks, group.kv_slots, entry_slots, group.context),
            *(spec.scale, spec.window),
        )
