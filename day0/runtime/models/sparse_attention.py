"""DeepSeek sparse attention: latent attention over the tokens that an indexer chose, here or in an earlier layer."""

from __future__ import annotations

import torch

from day0.profile.profile import SparseLatentAttention
from day0.runtime.models.build import Build
from day0.runtime.models.context import Choice, LayerContext
from day0.runtime.models.indexer import Indexer
from day0.runtime.models.latent_attention import LatentBlock, Queries


class SparseLatentBlock(LatentBlock):
    """x [tokens, hidden] -> [tokens, hidden], through the planes "latent" and, with an indexer, "index".

    Where the indexer takes every token the dense operator reads them, so that a context of up to `top_k` tokens gives
    the very numbers of dense attention.
    """

    def __init__(self, spec: SparseLatentAttention, build: Build) -> None:
        super().__init__(spec.attention, build)
        self.indexer = None
        if spec.indexer is not None:
            assert spec.attention.q_lora_rank is not None, "the config reader refuses an indexer without query latent"
            self.indexer = Indexer(spec.indexer, spec.attention.q_lora_rank, build)

    def choose(self, x: torch.Tensor, queries: Queries, context: LayerContext) -> tuple[Choice, ...]:
        """The indexer's choice, which is left for later layers; without an indexer that of the last layer with one."""
        if self.indexer is None:
            return context.carried.choices
        assert queries.latent is not None
        context.carried.choices = self.indexer(x, queries.latent, context)
        return context.carried.choices
