"""The attention residual in Triton (Kimi K3): scores, softmax and mix of the candidates without a tensor between."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl


@triton.jit
def _mix(
    candidates, norm_weight, query, out, weights, width, eps, COUNT: tl.constexpr, PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    direction = tl.load(norm_weight + column, mask=inside, other=0.0).to(tl.float32)
    direction *= tl.load(query + column, mask=inside, other=0.0).to(tl.float32)
    places = tl.arange(0, PADDED)
    scores = tl.full((PADDED,), float("-inf"), tl.float32)
    best, total = float("-inf"), 0.0
    mixed = tl.zeros((BLOCK,), tl.float32)
    for number in tl.static_range(COUNT):
        value = tl.load(candidates[number] + token * width + column, mask=inside, other=0.0).to(tl.float32)
        score = tl.sum(value * direction, axis=0) * tl.rsqrt(tl.sum(value * value, axis=0) / width + eps)
        higher = tl.maximum(best, score)
        kept, share = tl.exp(best - higher), tl.exp(score - higher)
        mixed = mixed * kept + share * value
        total = total * kept + share
        best = higher
        scores = tl.where(places == number, score, scores)
    tl.store(out + token * width + column, (mixed / total).to(out.dtype.element_ty), mask=inside)
    tl.store(weights + token * COUNT + places, tl.exp(scores - best) / total, mask=places < COUNT)


def attention_residual_mix(
    candidates: Sequence[torch.Tensor], norm_weight: torch.Tensor, query: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """As the reference of this name; each candidate is read once."""
    first = candidates[0]
    tokens, width = first.shape
    out = torch.empty(tokens, width, dtype=first.dtype, device=first.device)
    weights = torch.empty(tokens, len(candidates), dtype=torch.float32, device=first.device)
    _mix[tokens,](
        *(tuple(candidate.contiguous() for candidate in candidates), norm_weight, query, out, weights, width, eps),
        COUNT=len(candidates),
        PADDED=triton.next_power_of_2(len(candidates)),
        BLOCK=triton.next_power_of_2(width),
        num_warps=8,
    )
    return out, weights
