"""Grouped-query attention over the blocks of tokens that an indexer chose for each group of heads."""

from __future__ import annotations

import torch
from torch import nn

from day0.profile.profile import BlockIndexer, BlockSparseAttention
from day0.runtime.batch import SequenceGroup
from day0.runtime.models.attention import GroupedQueryBlock, HeadNormWeight
from day0.runtime.models.build import Build
from day0.runtime.models.context import Choice, LayerContext
from day0.runtime.ops.block_sparse import block_scores
from day0.runtime.ops.paged_attention import visible_keys


class BlockIndexerBlock(nn.Module):
    """Small queries and one key per token, kept in the layer's "index" plane; x [tokens, hidden] -> blocks."""

    def __init__(self, spec: BlockIndexer, build: Build) -> None:
        super().__init__()
        self.spec = spec
        self.ops = build.ops
        self.norm_eps, self.plus_one = build.norm_eps, build.norm_kind == "rms_plus_one"
        self.q_proj = build.linear(build.hidden, spec.num_heads * spec.head_dim)
        self.k_proj = build.linear(build.hidden, spec.head_dim)
        self.q_norm, self.k_norm = HeadNormWeight(spec.head_dim), HeadNormWeight(spec.head_dim)

    def forward(self, x: torch.Tensor, context: LayerContext) -> tuple[Choice, ...]:
        """The blocks that each group's heads read; the new tokens' keys are cached."""
        q = self.q_proj(x).unflatten(-1, (self.spec.num_heads, self.spec.head_dim))
        weights = self.q_norm.weight, self.k_norm.weight
        q, k = self.ops["qk_norm"](q, self.k_proj(x)[:, None], *weights, self.norm_eps, "head", self.plus_one)
        rope = self.spec.rope
        cos, sin = context.rotations[rope]
        q, k = (self.ops["rope"](part, cos, sin, rope.layout) for part in (q, k))
        context.save("mixer.index_q", q)
        context.save("mixer.index_k", k[:, 0])
        cache = context.write("index", k[:, 0])
        return tuple(self._choose(q, cache, group, context) for group in context.batch.groups)

    def _choose(self, q: torch.Tensor, cache: torch.Tensor, group: SequenceGroup, context: LayerContext) -> Choice:
        spec, traced = self.spec, len(context.batch.groups) == 1
        queries = q[group.start : group.end].unflatten(0, (group.sequences, group.length))
        if traced and context.wants("mixer.index_scores"):
            visible = visible_keys(group.context, group.length, group.kv_slots.shape[1], None)
            scores = block_scores(queries, cache[group.kv_slots], visible, spec.block)
            context.save("mixer.index_scores", scores.flatten(0, 1))
        if group.kv_slots.shape[1] <= spec.reach:
            return None
        blocks: torch.Tensor = self.ops["block_indexer_topk"](
            queries, cache, group.kv_slots, group.context, spec.top_k, spec.block, spec.local_blocks
        )
        return context.passed("mixer.topk_blocks", blocks.flatten(0, 1)).view_as(blocks) if traced else blocks


class BlockSparseBlock(GroupedQueryBlock):
    """x [tokens, hidden] -> [tokens, hidden], through the planes "k", "v" and "index".

    Where every block is read the dense operator reads them, so that a context of up to `reach` tokens gives the very
    numbers of dense attention.
    """

    def __init__(self, spec: BlockSparseAttention, build: Build) -> None:
        super().__init__(spec.attention, build)
        self.indexer = BlockIndexerBlock(spec.indexer, build)

    def choose(self, x: torch.Tensor, context: LayerContext) -> tuple[Choice, ...]:
        return self.indexer(x, context)

    def _attend_group(
        self, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, group: SequenceGroup, choice: Choice
    ) -> torch.Tensor:
        if choice is None:
            return super()._attend_group(q, k_cache, v_cache, group, choice)
        planes = k_cache, v_cache, group.kv_slots, group.context
        output: torch.Tensor = self.ops["block_sparse_attention"](
            q, *planes, choice, self.spec.scale, self.indexer.spec.block
        )
        return output
