"""The decoder: blocks chosen by spec, one list entry per layer, and the loop over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from day0.profile.mixers_linear import GatedDeltaNet, LinearMap, Mamba, Mamba2, ShortConvolution
from day0.profile.profile import (
    ArchitectureProfile,
    DenseFeedForward,
    GroupedQueryAttention,
    KimiDeltaAttention,
    LatentAttention,
    LayerSpec,
    NoFeedForward,
    NoMixer,
    RopeSpec,
    RoutedExperts,
    SparseLatentAttention,
)
from day0.runtime.batch import ForwardBatch
from day0.runtime.cache.storage import CacheStorage
from day0.runtime.models.attention import GroupedQueryBlock
from day0.runtime.models.build import Build
from day0.runtime.models.context import Carried, LayerContext
from day0.runtime.models.delta_attention import KimiDeltaBlock
from day0.runtime.models.experts import RoutedBlock
from day0.runtime.models.feed_forward import DenseBlock
from day0.runtime.models.gated_deltanet import GatedDeltaNetBlock
from day0.runtime.models.latent_attention import LatentBlock
from day0.runtime.models.linear import Embedding
from day0.runtime.models.mamba import Mamba2Block, MambaBlock
from day0.runtime.models.residual import Site, Stream, make_output, make_sites, open_stream
from day0.runtime.models.short_convolution import LinearMapBlock, ShortConvolutionBlock
from day0.runtime.models.sparse_attention import SparseLatentBlock
from day0.runtime.ops.registry import Operators
from day0.runtime.ops.rope import rope_frequencies, rope_table
from day0.runtime.quant.workspace import ExpertWorkspace

MIXERS: Mapping[type, Callable[..., nn.Module]] = {
    GroupedQueryAttention: GroupedQueryBlock,
    LatentAttention: LatentBlock,
    SparseLatentAttention: SparseLatentBlock,
    KimiDeltaAttention: KimiDeltaBlock,
    GatedDeltaNet: GatedDeltaNetBlock,
    Mamba: MambaBlock,
    Mamba2: Mamba2Block,
    ShortConvolution: ShortConvolutionBlock,
    LinearMap: LinearMapBlock,
}
"""The block that runs each mixer spec, built with (spec, build)."""

FEED_FORWARDS: Mapping[type, Callable[..., nn.Module]] = {
    DenseFeedForward: DenseBlock,
    RoutedExperts: RoutedBlock,
    LinearMap: LinearMapBlock,
}
"""The block that runs each feed-forward spec, built with (spec, build)."""


class DecoderLayer(nn.Module):
    """Mixer and feed-forward, each behind a read of the residual stream and a norm, or one of the two alone."""

    def __init__(self, spec: LayerSpec, build: Build) -> None:
        super().__init__()
        self.spec = spec
        self.mixer_res, self.ffn_res = make_sites(spec.residual, spec.index, build)
        self.mixer = self.ffn = None
        if not isinstance(spec.mixer, NoMixer):
            self.mixer_norm = build.norm(build.hidden)
            self.mixer = MIXERS[type(spec.mixer)](spec.mixer, build)
        if not isinstance(spec.feed_forward, NoFeedForward):
            self.ffn_norm = build.norm(build.hidden)
            self.ffn = FEED_FORWARDS[type(spec.feed_forward)](spec.feed_forward, build)

    def forward(self, stream: Stream, context: LayerContext) -> None:
        """Read, mix, add; read, feed forward, add."""
        if self.mixer is not None:
            x = self.mixer_norm(self._read("mixer", self.mixer_res, stream, context))
            self.mixer_res.write(stream, self._traced("mixer", self.mixer, x, context))
        if self.ffn is not None:
            x = self.ffn_norm(self._read("ffn", self.ffn_res, stream, context))
            self.ffn_res.write(stream, self._traced("ffn", self.ffn, x, context))
        assert stream.sum is not None
        context.save("output", stream.sum)

    def _read(self, branch: str, site: Site, stream: Stream, context: LayerContext) -> torch.Tensor:
        x, weights = site.read(stream)
        if weights is not None:
            context.save(f"{branch}_mix", x)
            context.save(f"{branch}_mix_weights", weights)
        return x

    def _traced(self, branch: str, block: nn.Module, x: torch.Tensor, context: LayerContext) -> torch.Tensor:
        context.save(f"{branch}_in", x)
        y = block(x, context)
        context.save(f"{branch}_out", y)
        return y


class Decoder(nn.Module):
    """A decoder-only model built from a profile; parameters carry the paths of `profile/tensors.py`.

    `workspace_experts` is how many converted experts the shared workspace holds, where experts are packed.
    """

    def __init__(self, profile: ArchitectureProfile, ops: Operators, workspace_experts: int = 16) -> None:
        super().__init__()
        self.profile = profile
        self.ops = ops
        self.workspace_experts = workspace_experts
        # Made on first use: device and dtype are known once the weights are loaded.
        self.workspace = cache(self._make_workspace)
        build = Build(
            profile.hidden_size, profile.norm_eps, ops, self.workspace, profile.norm_kind, profile.quantization
        )
        self.embed = Embedding(profile.vocab_size, profile.hidden_size, ops)
        self.layers = nn.ModuleList(DecoderLayer(spec, build) for spec in profile.layers)
        self.output_res = make_output(profile.residual, build)
        self.norm = build.norm(profile.hidden_size)
        self.lm_head = None if profile.tie_word_embeddings else build.linear(profile.hidden_size, profile.vocab_size)
        self._ropes = _rope_specs(profile)

    def forward(self, batch: ForwardBatch, cache: CacheStorage) -> torch.Tensor:
        """Logits of the batch's wanted rows, [wanted, vocab] float32; writes cache and states of all its tokens."""
        x = self.ops["embedding_lookup"](batch.token_ids, self.embed.weight)
        if batch.image_rows is not None:
            x = self.ops["embedding_scatter"](x, batch.image_rows, batch.image_embeddings)
        if batch.trace is not None:
            batch.trace.save("embed", x)
        rotations = self._rotations(batch.positions)
        stream, carried = open_stream(self.profile.residual, x), Carried()
        for index, layer in enumerate(self.layers):
            layer(stream, LayerContext(index, batch, cache, rotations, carried))
        return self._head(stream, batch)

    def _head(self, stream: Stream, batch: ForwardBatch) -> torch.Tensor:
        mix, weights = self.output_res.read(stream)
        normed = self.norm(mix[batch.rows])
        logits = self.ops["lm_head"](normed, self.embed.weight if self.lm_head is None else self.lm_head.matrix())
        if batch.trace is not None:
            if weights is not None:
                batch.trace.save("output_mix", mix)
                batch.trace.save("output_mix_weights", weights)
            batch.trace.save("norm", normed)
            batch.trace.save("logits", logits)
        return logits

    def _rotations(self, positions: torch.Tensor) -> dict[RopeSpec, tuple[torch.Tensor, torch.Tensor]]:
        tables = {}
        for spec in self._ropes:
            frequencies, factor = rope_frequencies(spec.theta, spec.dim, spec.scaling, dict(spec.parameters))
            tables[spec] = rope_table(positions, frequencies.to(positions.device), factor)
        return tables

    def _make_workspace(self) -> ExpertWorkspace:
        spec = next(s.feed_forward for s in self.profile.layers if isinstance(s.feed_forward, RoutedExperts))
        inner = self.profile.hidden_size if spec.latent_dim is None else spec.latent_dim
        capacity = min(self.workspace_experts, spec.router.num_experts)
        like = self.embed.weight
        return ExpertWorkspace(capacity, spec.width, inner, like.dtype, like.device)


def _rope_specs(profile: ArchitectureProfile) -> tuple[RopeSpec, ...]:
    """The distinct rotary specs of a model, in order of first use."""
    return tuple(dict.fromkeys(rope for layer in profile.layers for rope in _ropes_in(layer.mixer)))


def _ropes_in(spec: Any) -> Iterator[RopeSpec]:
    """The rotary specs of a mixer and of its parts."""
    if isinstance(spec, RopeSpec):
        yield spec
    elif is_dataclass(spec):
        for field in fields(spec):
            yield from _ropes_in(getattr(spec, field.name))
