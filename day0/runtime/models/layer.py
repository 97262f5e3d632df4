"""One decoder layer: mixer and feed-forward between norms, joined to the residual stream at two sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

from day0.profile.mixers_convolved import ParallelMixers
from day0.profile.mixers_linear import GatedDeltaNet, LightningAttention, LinearMap, Mamba, Mamba2, ShortConvolution
from day0.profile.profile import (
    BlockSparseAttention,
    CompressedSparseAttention,
    DenseFeedForward,
    FeedForward,
    GroupedQueryAttention,
    HeavilyCompressedAttention,
    KimiDeltaAttention,
    LatentAttention,
    LayerSpec,
    Mixer,
    NoFeedForward,
    NoMixer,
    ParallelResidual,
    PerLayerInputs,
    RoutedExperts,
    ScaledResidual,
    SharedKeyValueAttention,
    SparseLatentAttention,
)
from day0.runtime.models.attention import GroupedQueryBlock
from day0.runtime.models.block_sparse_attention import BlockSparseBlock
from day0.runtime.models.build import Build
from day0.runtime.models.compressed_attention import (
    CompressedSparseBlock,
    HeavilyCompressedBlock,
    SharedKeyValueBlock,
)
from day0.runtime.models.context import LayerContext
from day0.runtime.models.delta_attention import KimiDeltaBlock
from day0.runtime.models.ends import LayerInput
from day0.runtime.models.experts import RoutedBlock, routed_block
from day0.runtime.models.feed_forward import DenseBlock
from day0.runtime.models.gated_deltanet import GatedDeltaNetBlock
from day0.runtime.models.latent_attention import LatentBlock
from day0.runtime.models.lightning import LightningBlock
from day0.runtime.models.linear import weight
from day0.runtime.models.mamba import Mamba2Block, MambaBlock
from day0.runtime.models.norms import GatedNorm
from day0.runtime.models.parallel_mixers import ParallelBlock
from day0.runtime.models.residual import Site, Stream, make_sites
from day0.runtime.models.short_convolution import LinearMapBlock, ShortConvolutionBlock
from day0.runtime.models.sparse_attention import SparseLatentBlock
from day0.runtime.parallel.local_specs import is_whole

MIXERS: Mapping[type, Callable[..., nn.Module]] = {
    GroupedQueryAttention: GroupedQueryBlock,
    LatentAttention: LatentBlock,
    SparseLatentAttention: SparseLatentBlock,
    SharedKeyValueAttention: SharedKeyValueBlock,
    HeavilyCompressedAttention: HeavilyCompressedBlock,
    CompressedSparseAttention: CompressedSparseBlock,
    BlockSparseAttention: BlockSparseBlock,
    KimiDeltaAttention: KimiDeltaBlock,
    GatedDeltaNet: GatedDeltaNetBlock,
    LightningAttention: LightningBlock,
    Mamba: MambaBlock,
    Mamba2: Mamba2Block,
    ShortConvolution: ShortConvolutionBlock,
    LinearMap: LinearMapBlock,
    ParallelMixers: ParallelBlock,
}
"""The block that runs each mixer spec, built with (spec, build)."""

FEED_FORWARDS: Mapping[type, Callable[..., nn.Module]] = {
    DenseFeedForward: DenseBlock,
    RoutedExperts: routed_block,
    LinearMap: LinearMapBlock,
}
"""The block that runs each feed-forward spec, built with (spec, build)."""


class DecoderLayer(nn.Module):
    """Mixer and feed-forward, each behind a read of the residual stream and a norm, or one of the two alone.

    Norms may stand before and after each branch. `inputs` is there where every layer has an input of its own, which
    joins the stream after the branches.
    """

    def __init__(self, spec: LayerSpec, build: Build, inputs: PerLayerInputs | None = None) -> None:
        super().__init__()
        self.spec = spec
        self.ops = build.ops
        self.mixer_res, self.ffn_res = make_sites(spec.residual, spec.index, build)
        self.tp = build.ranks.tp
        self.mixer = self.ffn = None
        if not isinstance(spec.mixer, NoMixer):
            self.mixer = MIXERS[type(spec.mixer)](spec.mixer, build)
        if not isinstance(spec.feed_forward, NoFeedForward):
            self.ffn = FEED_FORWARDS[type(spec.feed_forward)](spec.feed_forward, build)
        self.mixer_norm, self.mixer_post_norm = (
            _norm(place, spec, build) for place in ("mixer_norm", "mixer_post_norm")
        )
        self.ffn_norm, self.ffn_post_norm = (_norm(place, spec, build) for place in ("ffn_norm", "ffn_post_norm"))
        self.layer_input = None if inputs is None else LayerInput(inputs, build)
        self.layer_input_norm = _norm("layer_input_norm", spec, build)
        self.scale = weight(1) if isinstance(spec.residual, ScaledResidual) else None

    def forward(self, stream: Stream, context: LayerContext) -> None:
        """Read, mix, add; read, feed forward, add."""
        if isinstance(self.spec.residual, ParallelResidual):
            self._run_beside_each_other(stream, context)
        else:
            self._run_mixer(stream, context)
            self._run_ffn(stream, context)
        assert stream.sum is not None
        if self.layer_input is not None and context.carried.layer_inputs is not None:
            own = context.carried.layer_inputs[:, self.spec.index]
            stream.sum = stream.sum + self.layer_input_norm(self.layer_input(stream.sum, own))
        if self.scale is not None:
            stream.sum = self.ops["learnt_scale"](stream.sum, self.scale)
        stream.sum = context.passed("output", stream.sum)

    def serve_others(self, x: torch.Tensor) -> None:
        """What other replicas need of this rank while its own has nothing to do; x [0, hidden]."""
        if isinstance(self.ffn, RoutedBlock):
            self.ffn.serve_others(x)

    def _run_mixer(self, stream: Stream, context: LayerContext) -> None:
        if self.mixer is None:
            return
        x = context.passed("mixer_in", self.mixer_norm(self._read("mixer", self.mixer_res, stream, context)))
        y = self.mixer_post_norm(self._whole(self.spec.mixer, self.mixer(x, context)))
        y = context.passed("mixer_out", y)
        self.mixer_res.write(stream, y, x)

    def _run_ffn(self, stream: Stream, context: LayerContext) -> None:
        if self.ffn is None:
            return
        read = self._read("ffn", self.ffn_res, stream, context)
        x = context.passed("ffn_in", self.ffn_norm(read))
        fed = self.ffn(x, context, read) if self._reads_stream else self.ffn(x, context)
        y = context.passed("ffn_out", self.ffn_post_norm(self._whole(self.spec.feed_forward, fed)))
        self.ffn_res.write(stream, y, x)

    def _run_beside_each_other(self, stream: Stream, context: LayerContext) -> None:
        """Both branches read one norm of the stream as it was before either."""
        assert self.mixer is not None and self.ffn is not None, "a parallel residual has two branches"
        x = context.passed("mixer_in", self.mixer_norm(self._read("mixer", self.mixer_res, stream, context)))
        mixed = context.passed("mixer_out", self._whole(self.spec.mixer, self.mixer(x, context)))
        context.save("ffn_in", x)
        fed = context.passed("ffn_out", self._whole(self.spec.feed_forward, self.ffn(x, context)))
        self.mixer_res.write(stream, mixed, x)
        self.ffn_res.write(stream, fed, x)

    def _whole(self, part: Mixer | FeedForward, output: torch.Tensor) -> torch.Tensor:
        """What a branch gives, added up over the ranks that have cut it between them."""
        return output if is_whole(part) else self.tp.sum(output)

    @property
    def _reads_stream(self) -> bool:
        """Whether the feed-forward reads the stream itself beside its norm."""
        block = self.spec.feed_forward
        return isinstance(block, RoutedExperts) and block.parallel is not None

    def _read(self, branch: str, site: Site, stream: Stream, context: LayerContext) -> torch.Tensor:
        x, weights = site.read(stream)
        if weights is not None:
            context.save(f"{branch}_mix_weights", weights)
            context.save(f"{branch}_mix", x)
        return x


def _norm(place: str, spec: LayerSpec, build: Build) -> nn.Module:
    """The norm in this place of a layer; what passes a place without one stays as it is."""
    eps = spec.post_norm_eps if place.endswith("_post_norm") else None
    if place in spec.unit_norms:
        return build.unit_norm(eps)
    if place not in spec.norms:
        return nn.Identity()
    norm = build.norm(build.hidden, eps)
    return GatedNorm(norm, build.hidden, spec.norm_gate_rank, build.ops) if place in spec.gated_norms else norm
