"""How layers read from and add to the residual stream."""

from __future__ import annotations

import torch
from torch import nn

from day0.profile.profile import AttentionResidual, Residual
from day0.runtime.models.build import Build


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

    This one is of a plain residual, x + branch.
    """

    def read(self, stream: Stream) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The branch's input [tokens, hidden] before its norm, and the mixing weights where there are any."""
        assert stream.sum is not None
        return stream.sum, None

    def write(self, stream: Stream, branch: torch.Tensor) -> None:
        stream.add(branch)


class AttentionSite(Site):
    """A site of an attention residual: reads a mix of snapshots and running sum by a learnt query.

    With `opens_block` the stream is snapshotted after the branch has read and before it adds.
    """

    def __init__(self, build: Build, *, opens_block: bool) -> None:
        super().__init__()
        self.norm = build.rms_norm(build.hidden)
        self.proj = build.linear(build.hidden, 1)
        self.ops = build.ops
        self.opens_block = opens_block

    def read(self, stream: Stream) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The mix [tokens, hidden] and the weights [tokens, candidates], None before the first snapshot."""
        if not stream.snapshots:
            assert stream.sum is not None
            return stream.sum, None
        return self.ops["attention_residual_mix"](
            stream.candidates(), self.norm.weight, self.proj.weight[0], self.norm.eps
        )

    def write(self, stream: Stream, branch: torch.Tensor) -> None:
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
    return Site(), Site()


def make_output(spec: Residual, build: Build) -> Site:
    """Where the final norm reads the stream; nothing is added there."""
    return AttentionSite(build, opens_block=False) if isinstance(spec, AttentionResidual) else Site()
