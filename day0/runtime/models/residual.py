"""How layers read from and add to the residual stream."""

from __future__ import annotations

import torch
from torch import nn

from day0.profile.profile import (
    AttentionResidual,
    ParallelResidual,
    PlainResidual,
    Residual,
    ScaledResidual,
    WeighedResidual,
)
from day0.runtime.models.build import Build
from day0.runtime.ops.registry import Operators


class Stream:
    """The residual stream of one forward: a running sum, and for attention residuals its earlier snapshots.

    Nothing of it outlives the forward.
    """

    def __init__(self, embedding: torch.Tensor) -> None:
        self.sum: torch.Tensor | None = embedding  # [tokens, hidden]; None right after a snapshot
        self.snapshots: list[torch.Tensor] = []

    def snapshot(self) -> None:
        """Close a block: keep the running sum as it is and start a new one."""
        assert self.sum is not None, "two snapshots without a branch between them"
        self.snapshots.append(self.sum)
        self.sum = None

    def add(self, branch: torch.Tensor) -> None:
        self.sum = branch if self.sum is None else self.sum + branch

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


def open_stream(spec: Residual, embedding: torch.Tensor) -> Stream:
    """The stream before the first layer, from embeddings [tokens, hidden]."""
    del spec  # every residual so far starts from the embedding itself
    return Stream(embedding)


def make_sites(spec: Residual, layer: int, build: Build) -> tuple[Site, Site]:
    """The sites of a layer's mixer and feed-forward."""
    match spec:
        case AttentionResidual():
            opens = layer % spec.block_size == 0
            return AttentionSite(build, opens_block=opens), AttentionSite(build, opens_block=False)
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
    return AttentionSite(build, opens_block=False) if isinstance(spec, AttentionResidual) else Site(build.ops)
