"""Decay between the tokens of a chunk, in log space: what every chunked recurrence with a forgetting state needs."""

from __future__ import annotations

import torch


def log_decay_between(g: torch.Tensor) -> torch.Tensor:
    """Log decay of what token i wrote by the time token t reads it: g[i + 1] + ... + g[t], and -inf for i > t.

    g [..., length] are log decays <= 0, each applied before its own token is written; gives [..., t, i]. Every entry
    is a sum of its own. As a difference of two running sums it would cancel: after one strong decay (-5000) the
    difference of two weak ones is no better than the sums' last place, 5e-4. A sum of terms <= 0 never overflows.
    """
    length = g.shape[-1]
    square = torch.ones(length, length, dtype=torch.bool, device=g.device)
    steps = g[..., :, None].expand(*g.shape, length)
    sums = torch.where(square.tril(-1), steps, 0.0).cumsum(dim=-2)
    return sums.masked_fill(~square.tril(), float("-inf"))
