"""How layers read from and add to the residual stream."""

from __future__ import annotations

import torch
from torch import nn

from day0.profile.profile import (
    AttentionResidual,
    HyperConnections,
    ParallelResidual,
    PlainResidual,
    Residual,
    ScaledResidual,
    WeighedResidual,
)
from day0.runtime.models.build import Build
from day0.runtime.models.linear import weight
from day0.runtime.ops.registry import Operators


class Stream:
    """The residual stream of one forward: a running sum, and for attention residuals its earlier snapshots.

    Hyper-connections have several sums, [tokens, streams, hidden], and leave the weights of a site's read to its
    write. Nothing of it outlives the forward.
    """

    def __init__(self, embedding: torch.Tensor) -> None:
        self.sum: torch.Tensor | None = embedding  # [tokens, hidden]; None right after a snapshot
        self.snapshots: list[torch.Tensor] = []
        self.weights: torch.Tensor | None = None

    def snapshot(self) -> None:
        """Close a block: keep the running sum as it is and start a new one."""
        assert self.sum is not None, "two snapshots without a branch between them"
        self.snapshots.append(self.sum)
        self.sum = None

    def add(self, branch: torch.Tensor) -> None:
        self.sum = branch if self.sum is None else self.sum + branch

    def packed(self) -> torch.Tensor:
        """Snapshots and sum one after another, as one tensor for another stage."""
        assert self.sum is not None, "a layer ends with a sum"
        return torch.stack([*self.snapshots, self.sum])

    @classmethod
    def unpacked(cls, tensors: torch.Tensor) -> Stream:
        stream = cls(tensors[-1])
        stream.snapshots = list(tensors[:-1])
        return stream

    def candidates(self) -> list[torch.Tensor]:
        return self.snapshots if self.sum is None else [*self.snapshots, self.sum]


class Site(nn.Module):
    """Where one branch of a layer joins the stream: it reads its input there and adds what it gives.

    This one is of a plain residual, x + branch_scale branch.
    """

    def __init__(self, ops: Operators, branch_scale: float = 1.0) -> None:
        super().__init__()
        self.ops = ops
        self.branch_scale = branch_scale

    def read(self, stream: Stream) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The branch's input [tokens, hidden] before its norm, and the mixing weights where there are any."""
        assert stream.sum is not None
        return stream.sum, None

    def write(self, stream: Stream, branch: torch.Tensor, normed: torch.Tensor) -> None:
        """Add what the branch [tokens, hidden] gave; `normed` is what it read, after its norm."""
        del normed
        if self.branch_scale != 1.0:
            branch = self.ops["constant_scale"](branch, self.branch_scale)
        stream.add(branch)


class WeighedSite(Site):
    """A site of a weighed residual, skip x + branch_scale branch, with norm(x) in x's place if `normed`."""

    def __init__(self, ops: Operators, skip: float, branch_scale: float, *, normed: bool) -> None:
        super().__init__(ops, branch_scale)
        self.skip, self.normed = skip, normed

    def write(self, stream: Stream, branch: torch.Tensor, normed: torch.Tensor) -> None:
        kept = normed if self.normed else stream.sum
        stream.sum = self.ops["weighed_residual_add"](kept, branch, self.skip, self.branch_scale)


class AttentionSite(Site):
    """A site of an attention residual: reads a mix of snapshots and running sum by a learnt query.

    With `opens_block` the stream is snapshotted after the branch has read and before it adds.
    """

    def __init__(self, build: Build, *, opens_block: bool) -> None:
        super().__init__(build.ops)
        self.norm = build.rms_norm(build.hidden)
        self.proj = build.linear(build.hidden, 1)
        self.opens_block = opens_block

    def read(self, stream: Stream) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The mix [tokens, hidden] and the weights [tokens, candidates], None before the first snapshot."""
        if not stream.snapshots:
            assert stream.sum is not None
            return stream.sum, None
        return self.ops["attention_residual_mix"](
            stream.candidates(), self.norm.weight, self.proj.weight[0], self.norm.eps
        )

    def write(self, stream: Stream, branch: torch.Tensor, normed: torch.Tensor) -> None:
        del normed
        if self.opens_block:
            stream.snapshot()
        stream.add(branch)


class HyperSite(Site):
    """A site of hyper-connections: reads, mixes and writes several streams by weights that it computes from them."""

    def __init__(self, spec: HyperConnections, build: Build) -> None:
        super().__init__(build.ops)
        self.spec, self.norm_eps = spec, build.norm_eps
        self.fn = weight(spec.num_weights, spec.streams * build.hidden)
        self.base = weight(spec.num_weights)
        self.scale = weight(spec.num_scales)

    def read(self, stream: Stream) -> tuple[torch.Tensor, torch.Tensor | None]:
        spec = self.spec
        mix, stream.weights = self.ops["hyper_connection_read"](
            *(stream.sum, self.fn, self.base, self.scale, self.norm_eps),
            *(spec.eps, spec.sinkhorn_iterations, spec.write_scale),
        )
        return mix, stream.weights

    def write(self, stream: Stream, branch: torch.Tensor, normed: torch.Tensor) -> None:
        del normed
        stream.sum = self.ops["hyper_connection_write"](
            stream.sum, branch, stream.weights, self.spec.sinkhorn_iterations
        )


class HyperOutput(Site):
    """Where several streams become one: by weights computed from them, or their mean."""

    def __init__(self, spec: HyperConnections, build: Build) -> None:
        super().__init__(build.ops)
        self.eps, self.norm_eps = spec.eps, build.norm_eps
        learned = spec.learned_head
        self.fn = weight(spec.streams, spec.streams * build.hidden) if learned else None
        self.base = weight(spec.streams) if learned else None
        self.scale = weight(1) if learned else None

    def read(self, stream: Stream) -> tuple[torch.Tensor, torch.Tensor | None]:
        joined = self.ops["hyper_connection_join"](stream.sum, self.fn, self.base, self.scale, self.norm_eps, self.eps)
        return joined, None


def open_stream(spec: Residual, embedding: torch.Tensor) -> Stream:
    """The stream before the first layer, from embeddings [tokens, hidden]; hyper-connections start with as many."""
    if isinstance(spec, HyperConnections):
        return Stream(embedding[:, None].repeat(1, spec.streams, 1))
    return Stream(embedding)


def packed_shape(spec: Residual, layer: int, tokens: int, hidden: int) -> tuple[int, ...]:
    """The shape of `Stream.packed` before a layer."""
    snapshots = -(-layer // spec.block_size) if isinstance(spec, AttentionResidual) else 0
    streams = (spec.streams,) if isinstance(spec, HyperConnections) else ()
    return (snapshots + 1, tokens, *streams, hidden)


def make_sites(spec: Residual, layer: int, build: Build) -> tuple[Site, Site]:
    """The sites of a layer's mixer and feed-forward."""
    match spec:
        case AttentionResidual():
            opens = layer % spec.block_size == 0
            return AttentionSite(build, opens_block=opens), AttentionSite(build, opens_block=False)
        case HyperConnections():
            return HyperSite(spec, build), HyperSite(spec, build)
        case PlainResidual() | ParallelResidual():
            return Site(build.ops, spec.branch_scale), Site(build.ops, spec.branch_scale)
        case WeighedResidual():
            return (
                WeighedSite(build.ops, spec.mixer_skip, spec.mixer_branch, normed=spec.normed),
                WeighedSite(build.ops, spec.ffn_skip, spec.ffn_branch, normed=spec.normed),
            )
        case ScaledResidual():
            return Site(build.ops), Site(build.ops)
    raise AssertionError(f"residual {spec.kind} passed models/support.py but has no site here")


def make_output(spec: Residual, build: Build) -> Site:
    """Where the final norm reads the stream; nothing is added there."""
    match spec:
        case AttentionResidual():
            return AttentionSite(build, opens_block=False)
        case HyperConnections():
            return HyperOutput(spec, build)
    return Site(build.ops)
