"""Choice of experts. Ties go to the lowest expert number, so that the choice is the same everywhere."""

from __future__ import annotations

import torch


def moe_router_topk_softmax(
    logits: torch.Tensor, top_k: int, renormalize: bool, scaling_factor: float, bias: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax over all experts, then the `top_k` largest. logits [tokens, experts] -> weights, ids [tokens, top_k]."""
    scores = torch.softmax(logits.float(), dim=-1)
    ids = _top_k(scores if bias is None else scores + bias.float(), top_k)
    return _weigh(scores, ids, renormalize, scaling_factor), ids


def moe_router_topk_sigmoid_bias(
    logits: torch.Tensor,
    top_k: int,
    renormalize: bool,
    scaling_factor: float,
    bias: torch.Tensor | None = None,
    num_groups: int = 1,
    topk_groups: int = 1,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sigmoid scores; chosen by score + bias, weighed by the score alone (DeepSeek-V3, arXiv 2412.19437).

    With `num_groups` > `topk_groups` only experts of the best groups are eligible, a group being worth the sum of its
    two best biased scores. logits [tokens, experts], bias [experts] -> weights, ids [tokens, top_k].
    """
    scores = torch.sigmoid(logits.float())
    biased = scores if bias is None else scores + bias.float()
    if num_groups > topk_groups:
        biased = _best_groups(biased, num_groups, topk_groups)
    ids = _top_k(biased, top_k)
    return _weigh(scores, ids, renormalize, scaling_factor), ids


def moe_router_group_best_softmax(
    logits: torch.Tensor,
    top_k: int,
    renormalize: bool,
    scaling_factor: float,
    bias: torch.Tensor | None = None,
    num_groups: int = 1,
    topk_groups: int = 1,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax scores; only experts of the groups whose best one is best are eligible (DeepSeek-V2, arXiv 2405.04434).

    logits [tokens, experts], bias [experts] -> weights, ids [tokens, top_k].
    """
    scores = torch.softmax(logits.float(), dim=-1)
    biased = scores if bias is None else scores + bias.float()
    if num_groups > topk_groups:
        biased = _best_groups(biased, num_groups, topk_groups, count=1)
    ids = _top_k(biased, top_k)
    return _weigh(scores, ids, renormalize, scaling_factor), ids


def _best_groups(biased: torch.Tensor, num_groups: int, topk_groups: int, count: int = 2) -> torch.Tensor:
    """The scores with those outside the best groups at -inf; a group is worth its best `count` scores together."""
    grouped = biased.unflatten(-1, (num_groups, -1))
    worth = grouped.topk(min(count, grouped.shape[-1]), dim=-1).values.sum(-1)
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
