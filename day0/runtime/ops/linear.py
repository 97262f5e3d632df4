"""Matrix products with the checkpoint's weights, which are stored [out_features, in_features]."""

from __future__ import annotations

import torch
from torch.nn import functional


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x [tokens, in] times weight transposed, plus bias."""
    return functional.linear(x, weight, bias)


def head_linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A matrix per head: x [tokens, heads, in], weight [heads, out, in] -> [tokens, heads, out]."""
    return torch.einsum("thi,hoi->tho", x, weight)
