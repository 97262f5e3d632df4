"""Modules that own plain weights: linear maps, norms and embeddings. They hold no bias unless told to."""

from __future__ import annotations

import torch
from torch import nn

from day0.runtime.ops.registry import Operators


def weight(*shape: int) -> nn.Parameter:
    """A parameter to be loaded; nothing here is ever trained."""
    return nn.Parameter(torch.empty(*shape), requires_grad=False)


class Linear(nn.Module):
    """x [tokens, in] -> [tokens, out].

    `relaid` is a copy of the matrix as the chosen kernel wants it for the numbers of tokens `relaid_for`
    (`models/relaid.py`). It is of use to maps that are called; of others a block reads the matrix alone.
    """

    # Of the class until they are set: a module takes long over each attribute, and a model has hundreds of these.
    relaid: torch.Tensor | None = None
    relaid_for = range(0)
    is_called = True

    def __init__(self, in_features: int, out_features: int, ops: Operators, bias: bool = False) -> None:
        super().__init__()
        self.weight = weight(out_features, in_features)
        self.bias = weight(out_features) if bias else None
        self.ops = ops

    def matrix(self) -> torch.Tensor:
        """[out, in] as numbers, for blocks that need the matrix itself.

        Packed weights are turned back in room that the next packed module takes over: use it before calling another.
        """
        return self.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        served = self.relaid is not None and x.shape[0] in self.relaid_for
        return self.ops["linear"](x, self.relaid if served else self.matrix(), self.bias)


class RMSNorm(nn.Module):
    """x [..., width] over its root mean square."""

    def __init__(self, width: int, eps: float, ops: Operators) -> None:
        super().__init__()
        self.weight = weight(width)
        self.eps = eps
        self.ops = ops

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.ops["rms_norm"](x, self.weight, self.eps)


class Embedding(nn.Module):
    """ids [tokens] -> [tokens, width]."""

    def __init__(self, entries: int, width: int, ops: Operators) -> None:
        super().__init__()
        self.weight = weight(entries, width)
        self.ops = ops

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.ops["embedding_lookup"](ids, self.weight)
