"""Matrix products on a CPU in bfloat16, from matrices laid out anew once instead of at every call.

oneDNN multiplies bfloat16 from blocks of a matrix. Given rows, torch has it make those blocks at every call, which for
few tokens takes longer than the product. The products are the same bit for bit.
"""

from __future__ import annotations

import torch

from day0.runtime.ops import embedding
from day0.runtime.ops import linear as rows


def relaid(weight: torch.Tensor) -> torch.Tensor:
    """A copy of weight [out, in] in oneDNN's blocks: as large, of the same shape and dtype, readable by it alone."""
    # The number of tokens is a hint, and the blocks for bfloat16 are the same for all of them.
    blocks: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, 1)
    return blocks


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x [tokens, in] times weight transposed, plus bias; `weight` [out, in] as rows, or as `relaid` gives it."""
    if not weight.is_mkldnn:
        return rows.linear(x, weight, bias)
    return _product(x, weight, bias)


def lm_head(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Logits in float32 of x [wanted, width]; `weight` [vocab, width] as rows, or as `relaid` gives it."""
    return _product(x, weight, None).float() if weight.is_mkldnn else embedding.lm_head(x, weight)


def biased_lm_head(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The same with a bias per token."""
    return _product(x, weight, bias).float() if weight.is_mkldnn else embedding.biased_lm_head(x, weight, bias)


def _product(x: torch.Tensor, blocks: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    if not x.shape[0]:
        return x.new_empty(0, blocks.shape[0])  # oneDNN has no product of nothing
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, blocks, bias, "none", [], "")
    return product
