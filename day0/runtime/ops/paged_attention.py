"""Causal softmax attention over a paged cache of keys and values.

All functions work on one group of sequences with as many new tokens each. `slots` [sequences, longest] names the
cache rows of each sequence in order, `context` [sequences] how many of them came before the new tokens.
"""

from __future__ import annotations

import torch
from torch.nn import functional


def visible_keys(context: torch.Tensor, length: int, longest: int, window: int | None) -> torch.Tensor:
    """The keys each new token may see: itself and those before it in the window; [sequences, length, longest] bool."""
    keys = torch.arange(longest, device=context.device)
    queries = context[:, None, None] + torch.arange(length, device=context.device)[None, :, None]
    visible = keys <= queries
    if window is not None:
        visible &= keys > queries - window
    return visible


def paged_gqa_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
    context: torch.Tensor,
    scale: float,
    window: int | None,
) -> torch.Tensor:
    """Grouped-query attention (Ainslie et al. 2023), float32 inside.

    q [sequences, length, heads, head_dim]; k_cache, v_cache [slots, kv_heads, head_dim]; gives q's shape and dtype.
    """
    visible = visible_keys(context, q.shape[1], slots.shape[1], window)
    weights = attention_weights(q, k_cache[slots], visible, scale)
    return _apply(weights, v_cache[slots]).to(q.dtype)


def paged_gqa_attention_sdpa(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
    context: torch.Tensor,
    scale: float,
    window: int | None,
) -> torch.Tensor:
    """The same through torch's fused scaled_dot_product_attention, which never stores the weights."""
    visible = visible_keys(context, q.shape[1], slots.shape[1], window)
    output = functional.scaled_dot_product_attention(
        q.transpose(1, 2),
        k_cache[slots].to(q.dtype).transpose(1, 2),
        v_cache[slots].to(q.dtype).transpose(1, 2),
        attn_mask=visible[:, None],
        scale=scale,
        enable_gqa=True,
    )
    return output.transpose(1, 2)


def attention_weights(q: torch.Tensor, k: torch.Tensor, visible: torch.Tensor, scale: float) -> torch.Tensor:
    """Softmax weights in float32, [sequences, kv_heads, heads / kv_heads, length, longest]."""
    sequences, length, heads, _ = q.shape
    kv_heads = k.shape[2]
    grouped = q.float().reshape(sequences, length, kv_heads, heads // kv_heads, -1)
    scores = torch.einsum("nqkgd,nskd->nkgqs", grouped, k.float()) * scale
    scores = scores.masked_fill(~visible[:, None, None], float("-inf"))
    return torch.softmax(scores, dim=-1)


def _apply(weights: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Weighted sum of values, [sequences, length, heads, value_dim] float32."""
    output = torch.einsum("nkgqs,nskd->nqkgd", weights, v.float())
    return output.flatten(2, 3)
