"""Choice of experts. Ties go to the lowest expert number, so that the choice is the same everywhere."""

from __future__ import annotations

import torch
from torch.nn import functional

Choice = tuple[torch.Tensor, torch.Tensor]
"""Weights float32 and expert numbers int64, both [tokens, top_k]."""


def moe_router_topk_softmax(
    logits: torch.Tensor,
    top_k: int,
    renormalize: bool,
    scaling_factor: float,
    bias: torch.Tensor | None = None,
    num_groups: int = 1,
    topk_groups: int = 1,
) -> Choice:
    """Softmax over all experts, then the `top_k` largest; logits [tokens, experts]. Bias and groups as for sigmoid."""
    scores = torch.softmax(logits.float(), dim=-1)
    return _choose(scores, top_k, renormalize, scaling_factor, bias, num_groups, topk_groups)


def moe_router_group_best_softmax(
    logits: torch.Tensor,
    top_k: int,
    renormalize: bool,
    scaling_factor: float,
    bias: torch.Tensor | None = None,
    num_groups: int = 1,
    topk_groups: int = 1,
) -> Choice:
    """The same where a group is worth its best expert (DeepSeek-V2, arXiv 2405.04434)."""
    scores = torch.softmax(logits.float(), dim=-1)
    return _choose(scores, top_k, renormalize, scaling_factor, bias, num_groups, topk_groups, counted=1)


def moe_router_topk_sigmoid_bias(
    logits: torch.Tensor,
    top_k: int,
    renormalize: bool,
    scaling_factor: float,
    bias: torch.Tensor | None = None,
    num_groups: int = 1,
    topk_groups: int = 1,
) -> Choice:
    """Sigmoid scores; chosen by score + bias, weighed by the score alone (DeepSeek-V3, arXiv 2412.19437).

    With `num_groups` > `topk_groups` only experts of the best groups are eligible, a group being worth the sum of its
    two best biased scores. logits [tokens, experts], bias [experts] -> weights, ids [tokens, top_k].
    """
    scores = torch.sigmoid(logits.float())
    return _choose(scores, top_k, renormalize, scaling_factor, bias, num_groups, topk_groups)


def moe_router_topk_sqrtsoftplus_bias(
    logits: torch.Tensor,
    top_k: int,
    renormalize: bool,
    scaling_factor: float,
    bias: torch.Tensor | None = None,
    num_groups: int = 1,
    topk_groups: int = 1,
) -> Choice:
    """The same with scores sqrt(log(1 + exp(logit))) (DeepSeek-V4)."""
    scores = functional.softplus(logits.float()).sqrt()
    return _choose(scores, top_k, renormalize, scaling_factor, bias, num_groups, topk_groups)


def moe_router_topk_logit_bias(
    logits: torch.Tensor, top_k: int, renormalize: bool, scaling_factor: float, bias: torch.Tensor
) -> Choice:
    """Chosen by logit + bias, weighed by sigmoid of the logit (Kolibri 1)."""
    ids = _top_k(logits.float() + bias.float(), top_k)
    return _weigh(torch.sigmoid(logits.float()), ids, renormalize, scaling_factor), ids


SPARSEMIXER_REACH = 0.02
"""Logits count beside the largest while they lie within twice this share of the larger magnitude (Phi-3.5-MoE)."""


def moe_router_sparsemixer(
    logits: torch.Tensor,
    top_k: int,
    renormalize: bool,
    scaling_factor: float,
    bias: torch.Tensor | None = None,
    num_groups: int = 1,
    topk_groups: int = 1,
) -> Choice:
    """One expert at a time: the largest logit left, weighed by softmax over the logits near enough to it.

    SparseMixer-v2 (arXiv 2409.12136) without its noise: expert j counts beside the largest logit m while
    (m - l_j) / max(|l_j|, m) is at most 0.02. The expert taken is out of the next softmax.
    """
    assert not renormalize and scaling_factor == 1.0 and bias is None and num_groups == topk_groups == 1, (
        "no model of this scoring has these"
    )
    original = left = logits.float()
    weights, ids = [], []
    for _ in range(top_k):
        best, chosen = left.max(dim=-1, keepdim=True)
        scale = torch.maximum(original.abs(), best)
        far = (best - original) / scale > SPARSEMIXER_REACH
        weights.append(torch.softmax(left.masked_fill(far, float("-inf")), dim=-1).gather(-1, chosen))
        ids.append(chosen)
        left = left.scatter(-1, chosen, float("-inf"))
    return torch.cat(weights, dim=-1), torch.cat(ids, dim=-1)


SCORES = {
    "softmax": lambda logits: torch.softmax(logits, dim=-1),
    "sigmoid": torch.sigmoid,
    "sqrtsoftplus": lambda logits: functional.softplus(logits).sqrt(),
}
"""Scores of float32 logits by the name that specs have for them."""


def moe_router_hash(
    logits: torch.Tensor,
    token_ids: torch.Tensor,
    table: torch.Tensor,
    scoring: str,
    renormalize: bool,
    scaling_factor: float,
) -> Choice:
    """The experts that `table` [ids, top_k] has for token_ids [tokens], weighed by their scores (DeepSeek-V4)."""
    ids = table[token_ids]
    return _weigh(SCORES[scoring](logits.float()), ids, renormalize, scaling_factor), ids


def moe_expert_scale(weights: torch.Tensor, ids: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Each chosen expert's weight times a learnt number, scale [experts] (Gemma 4)."""
    return weights * scale.float()[ids]


def _choose(
    scores: torch.Tensor,
    top_k: int,
    renormalize: bool,
    scaling_factor: float,
    bias: torch.Tensor | None,
    num_groups: int,
    topk_groups: int,
    counted: int = 2,
) -> Choice:
    """By biased scores within the best groups, a group being worth its `counted` best experts together."""
    biased = scores if bias is None else scores + bias.float()
    if num_groups > topk_groups:
        biased = _best_groups(biased, num_groups, topk_groups, counted)
    ids = _top_k(biased, top_k)
    return _weigh(scores, ids, renormalize, scaling_factor), ids


def _best_groups(biased: torch.Tensor, num_groups: int, topk_groups: int, counted: int) -> torch.Tensor:
    grouped = biased.unflatten(-1, (num_groups, -1))
    worth = grouped.topk(min(counted, grouped.shape[-1]), dim=-1).values.sum(-1)
    kept = torch.zeros_like(worth, dtype=torch.bool).scatter(-1, _top_k(worth, topk_groups), True)
    return grouped.masked_fill(~kept[..., None], float("-inf")).flatten(-2)


def _top_k(scores: torch.Tensor, count: int) -> torch.Tensor:
    # A stable sort keeps equal scores in order of their index; torch.topk promises nothing about ties.
    return scores.sort(dim=-1, descending=True, stable=True).indices[..., :count]


def _weigh(scores: torch.Tensor, ids: torch.Tensor, renormalize: bool, scaling_factor: float) -> torch.Tensor:
    weights = scores.gather(-1, ids)
    if renormalize:
        weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
    return weights * scaling_factor
