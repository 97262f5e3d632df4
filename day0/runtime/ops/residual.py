"""Ways to join the residual stream beyond a sum; attention residuals, which choose among block sums (Kimi K3)."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def weighed_residual_add(x: torch.Tensor, branch: torch.Tensor, skip: float, branch_scale: float) -> torch.Tensor:
    """skip x + branch_scale branch, both [tokens, width]; rounded once (MiniMax-01)."""
    return (skip * x.float() + branch_scale * branch.float()).to(x.dtype)


def attention_residual_mix(
    candidates: Sequence[torch.Tensor], norm_weight: torch.Tensor, query: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax over candidates of (normed candidate . query), applied to the raw candidates.

    candidates: each [tokens, width]; norm_weight and query [width]. Scores have no 1/sqrt(width) factor. Gives the
    mix [tokens, width] in the candidates' dtype and the weights [tokens, candidates] in float32.
    """
    direction = norm_weight.float() * query.float()
    scores = [_score(candidate, direction, eps) for candidate in candidates]
    weights = torch.softmax(torch.stack(scores, dim=-1), dim=-1)
    mix = torch.zeros_like(candidates[0], dtype=torch.float32)
    for index, candidate in enumerate(candidates):
        mix += weights[:, index, None] * candidate.float()
    return mix.to(candidates[0].dtype), weights


def _score(candidate: torch.Tensor, direction: torch.Tensor, eps: float) -> torch.Tensor:
    wide = candidate.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)) @ direction
