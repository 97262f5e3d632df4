"""Causal softmax attention over a paged cache of keys and values.

All functions work on one group of sequences with as many new tokens each. `slots` [sequences, longest] names the
cache rows of each sequence in order, `context` [sequences] how many of them came before the new tokens.
"""

from __future__ import annotations

import torch
from torch.nn import functional


def visible_keys(
    context: torch.Tensor,
    length: int,
    longest: int,
    window: int | None,
    *,
    chunked: bool = False,
    first: torch.Tensor | None = None,
) -> torch.Tensor:
    """The keys each new token may see: itself and those before it in the window; [sequences, length, longest] bool.

    A `chunked` window starts anew at every multiple of its length instead of sliding (Llama 4). `first` [sequences]
    is the position of each sequence's first key where that is not 0.
    """
    keys = torch.arange(longest, device=context.device)[None, None, :]
    if first is not None:
        keys = keys + first[:, None, None]
    queries = context[:, None, None] + torch.arange(length, device=context.device)[None, :, None]
    visible = keys <= queries
    if window is not None:
        visible &= keys >= queries - queries % window if chunked else keys > queries - window
    return visible


def within_reach(
    slots: torch.Tensor, context: torch.Tensor, length: int, window: int | None, chunked: bool = False
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The slots that some new token can see, so that what a window hides is not read, and each first one's position.

    The position is None where it is 0 for all. Sequences with fewer end in slots that the causal rule hides.
    """
    longest = slots.shape[1]
    if window is None or longest <= window + length - 1:
        return slots, None
    first = context - context % window if chunked else (context - window + 1).clamp(min=0)
    columns = first[:, None] + torch.arange(window + length - 1, device=slots.device)
    return slots.gather(1, columns.clamp(max=longest - 1)), first


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
    return paged_gqa_attention_variant(q, k_cache, v_cache, slots, context, scale, window)


def paged_gqa_attention_variant(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
    context: torch.Tensor,
    scale: float,
    window: int | None,
    chunked: bool = False,
    sinks: torch.Tensor | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """The same with what lines of models add: v_cache [slots, kv_heads, value_dim] may be of another width.

    `chunked` windows start anew at their multiples (Llama 4), `sinks` [heads] are logits that take weight from the
    softmax and give no value (gpt-oss), `softcap` bounds logits to softcap tanh(logit / softcap) (Gemma 2). Gives
    [sequences, length, heads, value_dim] in q's dtype.
    """
    slots, first = within_reach(slots, context, q.shape[1], window, chunked)
    visible = visible_keys(context, q.shape[1], slots.shape[1], window, chunked=chunked, first=first)
    weights = attention_weights(q, k_cache[slots], visible, scale, sinks=sinks, softcap=softcap)
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
    """`paged_gqa_attention` through torch's fused scaled_dot_product_attention, which never stores the weights."""
    sequences, length, heads, _ = q.shape
    slots, first = within_reach(slots, context, length, window)
    longest = slots.shape[1]
    keys, values = (_gathered(cache, slots, q.dtype) for cache in (k_cache, v_cache))
    queries = q.transpose(1, 2)
    # One sequence needs no mask: for one token all that was gathered is seen, and from the start the plain causal rule
    # holds. Then no mask is made and the kernel does less.
    alone = sequences == 1 and (window is None or longest <= window)
    if length == 1:
        queries = queries.reshape(sequences, keys.shape[1], -1, queries.shape[-1])  # a group of heads like rows
        mask = None if alone else visible_keys(context, 1, longest, window, first=first)[:, None]
        output = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale)
        return output.reshape(sequences, 1, heads, -1)
    causal = alone and longest == length
    mask = None if causal else visible_keys(context, length, longest, window, first=first)[:, None]
    output = functional.scaled_dot_product_attention(
        queries, keys, values, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=True
    )
    return output.transpose(1, 2)


def _gathered(cache: torch.Tensor, slots: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Rows of a plane in the order of slots, [sequences, heads, longest, width]."""
    rows = cache.index_select(0, slots.reshape(-1)).to(dtype)
    return rows.unflatten(0, slots.shape).transpose(1, 2)


def attention_weights(
    q: torch.Tensor,
    k: torch.Tensor,
    visible: torch.Tensor,
    scale: float,
    *,
    sinks: torch.Tensor | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """Softmax weights in float32, [sequences, kv_heads, heads / kv_heads, length, longest].

    With `sinks` [heads] they add up to less than 1: what the sink takes is left out.
    """
    sequences, length, heads, _ = q.shape
    kv_heads = k.shape[2]
    grouped = q.float().reshape(sequences, length, kv_heads, heads // kv_heads, -1)
    scores = torch.einsum("nqkgd,nskd->nkgqs", grouped, k.float()) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~visible[:, None, None], float("-inf"))
    if sinks is None:
        return torch.softmax(scores, dim=-1)
    taken = sinks.float().reshape(kv_heads, -1, 1, 1).expand(*scores.shape[:-1], 1)
    return torch.softmax(torch.cat((scores, taken), dim=-1), dim=-1)[..., :-1]


def _apply(weights: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Weighted sum of values, [sequences, length, heads, value_dim] float32."""
    output = torch.einsum("nkgqs,nskd->nqkgd", weights, v.float())
    return output.flatten(2, 3)
