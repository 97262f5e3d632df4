"""DeepSeek-V4's attention: one vector per token is key and value of all heads, in a window and, compressed, before it.

All functions work on one group of sequences with as many new tokens each: q [sequences, length, heads, head_dim];
`slots` [sequences, longest] names the rows of window_cache [slots, head_dim] in order, `context` [sequences] how many
came before the new tokens, and `entry_slots` [sequences, entries] the rows of compressed_cache, one for every `ratio`
tokens. `sinks` [heads] are learnt logits that join the softmax's denominator. Results are of q's shape and dtype.
"""

from __future__ import annotations

import torch

from day0.runtime.ops.latent_attention import masked_softmax, row_blocks


def shared_kv_attention(
    q: torch.Tensor,
    window_cache: torch.Tensor,
    sinks: torch.Tensor,
    slots: torch.Tensor,
    context: torch.Tensor,
    scale: float,
    window: int,
) -> torch.Tensor:
    """Attention to the last `window` tokens, the current one among them."""
    nothing = window_cache.new_empty(0, q.shape[-1])
    ids = context.new_empty(q.shape[0], q.shape[1], 0)
    return csa_attention(q, window_cache, nothing, ids, sinks, slots, slots[:, :0], context, scale, window)


def hca_attention(
    q: torch.Tensor,
    window_cache: torch.Tensor,
    compressed_cache: torch.Tensor,
    sinks: torch.Tensor,
    slots: torch.Tensor,
    entry_slots: torch.Tensor,
    context: torch.Tensor,
    scale: float,
    window: int,
    ratio: int,
) -> torch.Tensor:
    """Attention to the window and to every compressed entry whose last token is there."""
    totals = context[:, None] + torch.arange(1, q.shape[1] + 1, device=q.device)
    numbers = torch.arange(entry_slots.shape[1], device=q.device)
    ids = torch.where(numbers < (totals // ratio)[..., None], numbers, -1)
    return csa_attention(q, window_cache, compressed_cache, ids, sinks, slots, entry_slots, context, scale, window)


def csa_attention(
    q: torch.Tensor,
    window_cache: torch.Tensor,
    compressed_cache: torch.Tensor,
    ids: torch.Tensor,
    sinks: torch.Tensor,
    slots: torch.Tensor,
    entry_slots: torch.Tensor,
    context: torch.Tensor,
    scale: float,
    window: int,
) -> torch.Tensor:
    """Attention to the window and to the compressed entries chosen for each query.

    `ids` [sequences, length, chosen] int64 are numbers of entries, -1 for none.
    """
    sequences, length, heads, dim = q.shape
    output = torch.empty_like(q)
    per_row = sequences * (ids.shape[-1] + window) * (heads + dim)
    for block in row_blocks(length, per_row):
        near, seen = _window(window_cache, slots, context, block, window)
        far = _entries(compressed_cache, entry_slots, ids[:, block])
        rows = q[:, block].float()
        scores = torch.cat(
            (torch.einsum("nqhd,nsd->nqhs", rows, near), torch.einsum("nqhd,nqsd->nqhs", rows, far)), dim=-1
        )
        visible = torch.cat((seen, ids[:, block] >= 0), dim=-1)[:, :, None]
        weights = masked_softmax(scores * scale, visible, sinks)
        close, distant = weights.split((near.shape[1], far.shape[2]), dim=-1)
        mixed = torch.einsum("nqhs,nsd->nqhd", close, near) + torch.einsum("nqhs,nqsd->nqhd", distant, far)
        output[:, block] = mixed.to(q.dtype)
    return output


def _window(
    cache: torch.Tensor, slots: torch.Tensor, context: torch.Tensor, block: slice, window: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens that any query of a block sees [sequences, seen, head_dim], and which query sees which."""
    first = context + block.start
    queries = first[:, None] + torch.arange(block.stop - block.start, device=slots.device)
    places = (first - window + 1)[:, None] + torch.arange(window + block.stop - block.start - 1, device=slots.device)
    rows = cache[slots.gather(1, places.clamp(min=0))].float()
    near = places[:, None] > queries[..., None] - window
    return rows, near & (places[:, None] <= queries[..., None]) & (places[:, None] >= 0)


def _entries(cache: torch.Tensor, slots: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """The chosen entries, [sequences, rows, chosen, head_dim]; zeros for none, as nobody may have written that row."""
    if slots.shape[1] == 0:
        return cache.new_zeros(*ids.shape, cache.shape[-1]).float()
    places = slots.gather(1, ids.clamp(min=0).flatten(1)).view(ids.shape)
    return torch.where((ids >= 0)[..., None], cache[places], 0).float()
