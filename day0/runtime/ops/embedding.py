"""Token embeddings, image embeddings put in their place, and logits."""

from __future__ import annotations

import torch
from torch.nn import functional

CONVERTED_ROWS = 8192
"""Rows of a head that are converted at a time."""


def embedding_lookup(ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Rows of weight [vocab, width] by id [tokens]."""
    return functional.embedding(ids, weight)


def embedding_scatter(x: torch.Tensor, rows: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """x [tokens, width] with its `rows` [image tokens] replaced by images [image tokens, width]."""
    return x.index_copy(0, rows, images.to(x.dtype))


def embedding_scatter_add(x: torch.Tensor, rows: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """x [tokens, width] with `images` [merged, width] added to `rows`; x itself stays (DeepStack, arXiv 2406.04334)."""
    return x.index_add(0, rows, images.to(x.dtype))


def lm_head(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Logits in float32 of x [wanted, width]; the product is in x's dtype.

    A weight [vocab, width] of another dtype, kept as it is stored, is converted some rows at a time.
    """
    if weight.dtype == x.dtype:
        return functional.linear(x, weight).float()
    pieces = weight.split(CONVERTED_ROWS)
    return torch.cat([functional.linear(x, rows.to(x.dtype)).float() for rows in pieces], dim=-1)


def biased_lm_head(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The same with a bias per token."""
    if weight.dtype == x.dtype:
        return functional.linear(x, weight, bias).float()
    pieces = zip(weight.split(CONVERTED_ROWS), bias.to(x.dtype).split(CONVERTED_ROWS), strict=True)
    return torch.cat([functional.linear(x, rows.to(x.dtype), part).float() for rows, part in pieces], dim=-1)
