"""The MLPs of the chosen experts, each run over all tokens that chose it: one by one, or grouped in one product."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch.nn import functional


class ExpertMatrices(NamedTuple):
    """An expert's number with its gate [width, in], up [width, in], down [in, width], and a bias of each or none.

    Experts that are not gated have no gate.
    """

    expert: int
    gate: torch.Tensor | None
    up: torch.Tensor
    down: torch.Tensor
    gate_bias: torch.Tensor | None = None
    up_bias: torch.Tensor | None = None
    down_bias: torch.Tensor | None = None


class StackedExperts(NamedTuple):
    """The same of all experts where they lie plain in memory: weights [experts, out, in], biases [experts, out]."""

    gate: torch.Tensor | None
    up: torch.Tensor
    down: torch.Tensor
    gate_bias: torch.Tensor | None = None
    up_bias: torch.Tensor | None = None
    down_bias: torch.Tensor | None = None


Matrices = Callable[[list[int]], Iterable[ExpertMatrices]]
"""Asked for the experts that were chosen, in ascending order; may reuse their memory once the next one is taken."""

Activation = Callable[..., torch.Tensor]
"""Of (gate, up), or of up alone where experts have no gate."""

ROW_BYTES = 16
"""What torch's grouped product wants rows of weights to be a multiple of."""


def routed_experts(
    x: torch.Tensor,
    weights: torch.Tensor,
    ids: torch.Tensor,
    num_experts: int,
    matrices: Matrices,
    activation: Activation,
    stacked: StackedExperts | None = None,
) -> torch.Tensor:
    """Weighted sum over each token's experts of down(activation(gate x, up x)), accumulated in float32.

    x [tokens, in]; weights, ids [tokens, top_k]. `stacked` has all experts where they lie plain in memory; this
    definition does without. Gives [tokens, in] in x's dtype.
    """
    del stacked
    return _one_by_one(x, weights, ids, num_experts, matrices, activation, weigh_input=False)


def input_weighted_experts(
    x: torch.Tensor,
    weights: torch.Tensor,
    ids: torch.Tensor,
    num_experts: int,
    matrices: Matrices,
    activation: Activation,
    stacked: StackedExperts | None = None,
) -> torch.Tensor:
    """The same where each expert reads x times its weight, and the sum is plain (Llama 4)."""
    del stacked
    return _one_by_one(x, weights, ids, num_experts, matrices, activation, weigh_input=True)


def routed_experts_grouped(
    x: torch.Tensor,
    weights: torch.Tensor,
    ids: torch.Tensor,
    num_experts: int,
    matrices: Matrices,
    activation: Activation,
    stacked: StackedExperts | None = None,
) -> torch.Tensor:
    """`routed_experts` with one grouped product per projection.

    Packed experts, which are converted a few at a time (`stacked` is None), go one by one as the definition does, and
    so do experts whose rows are not a multiple of 16 bytes long.
    """
    if stacked is None or not _aligned(stacked):
        return _one_by_one(x, weights, ids, num_experts, matrices, activation, weigh_input=False)
    return _grouped(x, weights, ids, stacked, activation, weigh_input=False)


def input_weighted_experts_grouped(
    x: torch.Tensor,
    weights: torch.Tensor,
    ids: torch.Tensor,
    num_experts: int,
    matrices: Matrices,
    activation: Activation,
    stacked: StackedExperts | None = None,
) -> torch.Tensor:
    """`input_weighted_experts` in the same way."""
    if stacked is None or not _aligned(stacked):
        return _one_by_one(x, weights, ids, num_experts, matrices, activation, weigh_input=True)
    return _grouped(x, weights, ids, stacked, activation, weigh_input=True)


def _aligned(stacked: StackedExperts) -> bool:
    return all(weight.shape[-1] * weight.itemsize % ROW_BYTES == 0 for weight in (stacked.up, stacked.down))


def _one_by_one(
    x: torch.Tensor,
    weights: torch.Tensor,
    ids: torch.Tensor,
    num_experts: int,
    matrices: Matrices,
    activation: Activation,
    *,
    weigh_input: bool,
) -> torch.Tensor:
    top_k = ids.shape[1]
    order = ids.flatten().argsort(stable=True)  # assignments by expert, by token inside an expert
    counts = ids.flatten().bincount(minlength=num_experts).tolist()
    tokens = order // top_k
    share = weights.flatten()[order].float()
    output = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    start = 0
    for one in matrices([e for e, count in enumerate(counts) if count]):
        end = start + counts[one.expert]
        chosen, weight = tokens[start:end], share[start:end, None]
        inputs = (x[chosen] * weight).to(x.dtype) if weigh_input else x[chosen]
        inner = functional.linear(inputs, one.up, one.up_bias)
        if one.gate is None:
            inner = activation(inner)
        else:
            inner = activation(functional.linear(inputs, one.gate, one.gate_bias), inner)
        given = functional.linear(inner, one.down, one.down_bias).float()
        output.index_add_(0, chosen, given if weigh_input else given * weight)
        start = end
    return output.to(x.dtype)


def _grouped(
    x: torch.Tensor,
    weights: torch.Tensor,
    ids: torch.Tensor,
    stacked: StackedExperts,
    activation: Activation,
    *,
    weigh_input: bool,
) -> torch.Tensor:
    """Assignments sorted by expert pass each projection in one grouped product; each token sums its own in order."""
    tokens, top_k = ids.shape
    experts, order = ids.flatten().sort(stable=True)
    ends = experts.bincount(minlength=stacked.up.shape[0]).cumsum(0).to(torch.int32)
    inputs = x[order // top_k]
    if weigh_input:
        inputs = (inputs * weights.flatten()[order, None].float()).to(x.dtype)

    def project(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        product = functional.grouped_mm(rows, weight.mT, offs=ends)
        return product if bias is None else product + bias[experts]

    inner = project(inputs, stacked.up, stacked.up_bias)
    if stacked.gate is None:
        inner = activation(inner)
    else:
        inner = activation(project(inputs, stacked.gate, stacked.gate_bias), inner)
    given = torch.empty(tokens * top_k, x.shape[1], dtype=torch.float32, device=x.device)
    given[order] = project(inner, stacked.down, stacked.down_bias).float()
    given = given.unflatten(0, (tokens, top_k))
    return (given.sum(1) if weigh_input else torch.einsum("tki,tk->ti", given, weights.float())).to(x.dtype)
