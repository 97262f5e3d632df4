"""Causal softmax attention over a paged cache: keys and values, or one latent that serves as both.

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


def paged_mla_attention(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    latent_cache: torch.Tensor,
    slots: torch.Tensor,
    context: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Latent attention in absorbed form (DeepSeek-V2): every head reads the one latent and the shared key slice.

    q_latent [sequences, length, heads, latent]; q_rope [sequences, length, heads, rope]; latent_cache
    [slots, latent + rope] with the normed latent first. Gives [sequences, length, heads, latent] in q_latent's dtype.
    """
    latent = q_latent.shape[-1]
    keys = latent_cache[slots][:, :, None, :]  # one key/value head
    visible = visible_keys(context, q_latent.shape[1], slots.shape[1], None)
    weights = attention_weights(torch.cat((q_latent, q_rope), dim=-1), keys, visible, scale)
    return _apply(weights, keys[..., :latent]).to(q_latent.dtype)


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
