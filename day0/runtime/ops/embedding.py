"""Token embeddings, image embeddings put in their place, and logits."""

from __future__ import annotations

import torch
from torch.nn import functional


def embedding_lookup(ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Rows of weight [vocab, width] by id [tokens]."""
    return functional.embedding(ids, weight)


def embedding_scatter(x: torch.Tensor, rows: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """x [tokens, width] with its `rows` [image tokens] replaced by images [image tokens, width]."""
    return x.index_copy(0, rows, images.to(x.dtype))


def lm_head(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Logits in float32 of x [wanted, width]; the product is in the model's dtype."""
    return functional.linear(x, weight).float()


def biased_lm_head(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The same with a bias per token."""
    return functional.linear(x, weight, bias).float()
