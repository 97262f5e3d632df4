"""Matrix products on a CPU by oneDNN, from rows or from matrices laid out anew once instead of at every call.

Products of rows and of the blocks they were laid out in are the same bit for bit. In float32 a token's product by a
large matrix is the same beside any number of others, for oneDNN adds in one order for two rows and more; alone it goes
the way of the reference, which then has the memory to wait for and nothing else.
"""

from __future__ import annotations

import sys

import torch

from day0.runtime.ops import embedding
from day0.runtime.ops import linear as rows

HINT = 8
"""Tokens to lay a matrix out for: told of 1, oneDNN leaves float32 in rows. Blocks serve any number."""

WIDE = 48
"""Tokens from which a bfloat16 product is quicker in float32, the matrix converted for the call: there a processor
without matrix units multiplies as many bfloat16 as float32 at a time, or fewer."""

WIDE_NUMBERS = 4 << 20
"""Numbers of a matrix that are converted at a time."""


SMALL = 1 << 18
"""Numbers of a float32 matrix below which a call of oneDNN takes longer than it saves."""


def relaid(weight: torch.Tensor) -> torch.Tensor:
    """A copy of weight [out, in] in oneDNN's blocks: as large, of the same shape and dtype, readable by it alone."""
    blocks: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, HINT)
    return blocks


def served(weight: torch.Tensor) -> range:
    """Numbers of tokens that are multiplied from the blocks of a matrix; none where blocks are of no use."""
    if weight.dtype == torch.bfloat16:
        return range(WIDE)
    return range(2, sys.maxsize) if weight.numel() >= SMALL else range(0)


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x [tokens, in] times weight transposed, plus bias; `weight` [out, in] as rows, or as `relaid` gives it."""
    tokens, dtype = x.shape[0], x.dtype
    if weight.is_mkldnn or (dtype == torch.float32 and tokens > 1 and weight.numel() >= SMALL):
        return _product(x, weight, bias)
    if dtype == torch.bfloat16 and tokens >= WIDE:
        return _wide_product(x, weight, bias)
    return rows.linear(x, weight, bias)


def lm_head(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Logits in float32 of x [wanted, width]; `weight` [vocab, width] as rows, or as `relaid` gives it.

    Rows of another dtype, kept as they are stored, are converted some at a time.
    """
    if weight.is_mkldnn or weight.dtype == x.dtype:
        return linear(x, weight).float()
    pieces = weight.split(embedding.CONVERTED_ROWS)
    return torch.cat([linear(x, piece.to(x.dtype)).float() for piece in pieces], dim=-1)


def biased_lm_head(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The same with a bias per token."""
    if weight.is_mkldnn or weight.dtype == x.dtype:
        return linear(x, weight, bias).float()
    pieces = zip(weight.split(embedding.CONVERTED_ROWS), bias.to(x.dtype).split(embedding.CONVERTED_ROWS), strict=True)
    return torch.cat([linear(x, piece.to(x.dtype), part).float() for piece, part in pieces], dim=-1)


def _product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    if not x.shape[0]:
        return x.new_empty(0, weight.shape[0])  # oneDNN has no product of nothing
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


def _wide_product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """The product of bfloat16 rows in float32, rounded once; some rows of the matrix at a time."""
    wide, outs = x.float(), max(1, WIDE_NUMBERS // weight.shape[1])
    biases = [None] * -(-weight.shape[0] // outs) if bias is None else bias.float().split(outs)
    pieces = zip(weight.split(outs), biases, strict=True)
    products = [_product(wide, piece.float(), part).to(x.dtype) for piece, part in pieces]
    return products[0] if len(products) == 1 else torch.cat(products, dim=-1)
