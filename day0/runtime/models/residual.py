"""How layers read from and add to the residual stream."""

from __future__ import annotations

import torch
from torch import nn

from day0.profile.profile import AttentionResidual, Residual
from day0.runtime.models.linear import Linear, RMSNorm
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


class PlainRead(nn.Module):
    """Reads the running sum."""

    def forward(self, stream: Stream) -> tuple[torch.Tensor, torch.Tensor | None]:
        assert stream.sum is not None
        return stream.sum, None


class AttentionRead(nn.Module):
    """One read of an attention residual: mixes snapshots and running sum by a learnt query."""

    def __init__(self, hidden: int, eps: float, ops: Operators) -> None:
        super().__init__()
        self.norm = RMSNorm(hidden, eps, ops)
        self.proj = Linear(hidden, 1, ops)
        self.ops = ops

    def forward(self, stream: Stream) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The mix [tokens, hidden] and the weights [tokens, candidates], None before the first snapshot."""
        if not stream.snapshots:
            assert stream.sum is not None
            return stream.sum, None
        return self.ops["attention_residual_mix"](
            stream.candidates(), self.norm.weight, self.proj.weight[0], self.norm.eps
        )


def make_read(spec: Residual, hidden: int, eps: float, ops: Operators) -> nn.Module:
    return AttentionRead(hidden, eps, ops) if isinstance(spec, AttentionResidual) else PlainRead()


def opens_block(spec: Residual, layer: int) -> bool:
    """Whether the stream is snapshotted at this layer, after its mixer has read and before it adds."""
    return isinstance(spec, AttentionResidual) and layer % spec.block_size == 0
