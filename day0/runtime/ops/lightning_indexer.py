"""The lightning indexer: a score for every entry of the past, and the best ones (DeepSeek-V3.2, arXiv 2512.02556)."""

from __future__ import annotations

import torch

from day0.runtime.ops.latent_attention import row_blocks


def index_scores(q: torch.Tensor, weights: torch.Tensor, keys: torch.Tensor, scale: float) -> torch.Tensor:
    """sum_h weight_h relu(q_h . k_s) x scale, [sequences, length, entries] float32.

    q [sequences, length, heads, head_dim]; weights [sequences, length, heads]; keys [sequences, entries, head_dim].
    """
    products = torch.einsum("nqhd,nsd->nqhs", q.float(), keys.float()).relu_()
    return torch.einsum("nqh,nqhs->nqs", weights.float(), products) * scale


def lightning_indexer_topk(
    q: torch.Tensor,
    weights: torch.Tensor,
    index_cache: torch.Tensor,
    slots: torch.Tensor,
    context: torch.Tensor,
    top_k: int,
    scale: float,
    ratio: int = 1,
    keep_tail: bool = False,
) -> torch.Tensor:
    """The entries that each new token chooses, [sequences, length, chosen] int64: ascending numbers, then -1.

    q [sequences, length, heads, head_dim]; weights [sequences, length, heads] float32; index_cache [rows, head_dim],
    of which `slots` [sequences, entries] names each sequence's in order; `context` [sequences] tokens came before.
    Entry e stands for the tokens e x ratio .. e x ratio + ratio - 1 and can be chosen once the last of them is there.
    The `top_k` with the highest scores are taken; of equal scores those that come first. With `keep_tail` one more
    place holds the number of the entry that the token itself has not finished, -1 where there is none.
    """
    sequences, length, heads, _ = q.shape
    entries = slots.shape[1]
    totals = context[:, None] + torch.arange(1, length + 1, device=q.device)  # tokens up to each new one
    ready = totals // ratio
    chosen = ready.new_empty(sequences, length, min(top_k, entries))
    keys = index_cache[slots]
    for block in row_blocks(length, sequences * heads * entries):
        scores = index_scores(q[:, block], weights[:, block], keys, scale)
        chosen[:, block] = choose_entries(scores, ready[:, block], top_k)
    if not keep_tail:
        return chosen
    return torch.cat((chosen, torch.where(totals % ratio > 0, ready, -1)[..., None]), dim=-1)


def choose_entries(scores: torch.Tensor, ready: torch.Tensor, top_k: int) -> torch.Tensor:
    """Numbers of the `top_k` best of the first `ready` entries, ascending and then -1; ties go to the lowest number.

    scores [..., entries], ready [...] -> [..., min(top_k, entries)] int64. torch.topk promises nothing about ties, so
    it only gives the last score that is good enough; who has just that score is taken in order.
    """
    entries = scores.shape[-1]
    count = min(top_k, entries)
    if count == 0:
        return ready.new_empty(*ready.shape, 0)
    numbers = torch.arange(entries, device=scores.device)
    visible = numbers < ready[..., None]
    scores = scores.masked_fill(~visible, float("-inf"))
    least = scores.topk(count, dim=-1).values[..., -1:]
    above, level = scores > least, scores == least
    room = count - above.sum(-1, keepdim=True)
    taken = (above | (level & (level.cumsum(-1) <= room))) & visible
    places = torch.where(taken, taken.cumsum(-1) - 1, count)  # what is not taken goes to a column that is cut off
    chosen = ready.new_full((*ready.shape, count + 1), -1)
    return chosen.scatter_(-1, places, numbers.expand_as(places))[..., :count]


def entry_tokens(ids: torch.Tensor, ratio: int, context: torch.Tensor) -> torch.Tensor:
    """The tokens that chosen entries stand for, none after the one that chose; -1 in the other places.

    ids [sequences, length, chosen] -> [sequences, length, chosen x ratio].
    """
    queries = context[:, None] + torch.arange(ids.shape[1], device=ids.device)
    tokens = ids[..., None] * ratio + torch.arange(ratio, device=ids.device)
    there = (ids[..., None] >= 0) & (tokens <= queries[..., None, None])
    return torch.where(there, tokens, -1).flatten(-2)
