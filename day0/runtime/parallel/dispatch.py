"""Tokens to the ranks that have their experts, and back: an exchange of rows whose numbers are exchanged first."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch

from day0.runtime.parallel.layout import even_share
from day0.runtime.parallel.ranks import Ranks

RunExperts = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Of rows [rows, width], their weights [rows, 1] and numbers of experts of this rank [rows, 1]: [rows, width]."""


def dispatch(
    x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor, num_experts: int, ranks: Ranks, run: RunExperts
) -> torch.Tensor:
    """The weighted sum over each token's experts, wherever those are; all ranks of the stage call this together.

    x [tokens, width] are this rank's own tokens, none perhaps; weights, ids [tokens, top_k]. A row goes to every rank
    that holds a slice of its expert, and their shares are added up here, in float32. [tokens, width] in x's dtype.
    """
    layout, group, top_k = ranks.layout, ranks.stage, ids.shape[1]
    order, sent = _by_rank(ids, num_experts, layout.ep, layout.expert_tp)
    received = group.exchange_counts(sent, x.device)
    rows = group.exchange(x[order // top_k], sent, received)
    # The bits of the weights travel as integers beside the numbers of the experts.
    bits = weights.flatten()[order].float().view(torch.int32)
    facts = group.exchange(torch.stack((ids.flatten()[order].int(), bits), dim=1), sent, received)
    if rows.shape[0]:
        numbers = facts[:, :1].long() - ranks.experts(num_experts).start
        rows = run(rows, facts[:, 1:].contiguous().view(torch.float32), numbers)
    given = group.exchange(rows, received, sent)
    output = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    return output.index_add_(0, order // top_k, given.float()).to(x.dtype)


def _by_rank(ids: torch.Tensor, num_experts: int, lots: int, slices: int) -> tuple[torch.Tensor, list[int]]:
    """The assignments (token x top_k + choice) that go to each rank of a stage, in turn, and how many those are."""
    order = ids.flatten().argsort(stable=True)
    chosen = ids.flatten()[order].contiguous()
    bounds = torch.tensor([even_share(num_experts, lots, lot).start for lot in range(lots)] + [num_experts])
    places = torch.searchsorted(chosen, bounds.to(chosen.device)).tolist()
    pieces = [order[start:end] for start, end in pairwise(places) for _ in range(slices)]
    return torch.cat(pieces), [len(piece) for piece in pieces]
