"""The gated MLPs of the chosen experts, each run once over all tokens that chose it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch.nn import functional

ExpertMatrices = tuple[int, torch.Tensor, torch.Tensor, torch.Tensor]
"""An expert's number with its gate [width, in], up [width, in] and down [in, width]."""


def routed_experts(
    x: torch.Tensor,
    weights: torch.Tensor,
    ids: torch.Tensor,
    num_experts: int,
    matrices: Callable[[list[int]], Iterable[ExpertMatrices]],
    activation: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Weighted sum over each token's experts of down(activation(gate x, up x)), accumulated in float32.

    x [tokens, in]; weights, ids [tokens, top_k]. `matrices` is asked for the experts that were chosen, in ascending
    order, and may reuse their memory once the next one is taken. Gives [tokens, in] in x's dtype.
    """
    top_k = ids.shape[1]
    order = ids.flatten().argsort(stable=True)  # assignments by expert, by token inside an expert
    counts = ids.flatten().bincount(minlength=num_experts).tolist()
    tokens = order // top_k
    share = weights.flatten()[order].float()
    output = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    start = 0
    for expert, gate, up, down in matrices([e for e, count in enumerate(counts) if count]):
        end = start + counts[expert]
        chosen = tokens[start:end]
        inputs = x[chosen]
        inner = activation(functional.linear(inputs, gate), functional.linear(inputs, up))
        output.index_add_(0, chosen, functional.linear(inner, down).float() * share[start:end, None])
        start = end
    return output.to(x.dtype)
