"""Attention over blocks of tokens that an indexer chose for each group of heads (MiniMax M3), and that choice.

All functions work on one group of sequences with as many new tokens each. `slots` [sequences, longest] names the
cache rows of each sequence in order, `context` [sequences] how many of them came before the new tokens.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from day0.runtime.ops.latent_attention import row_blocks
from day0.runtime.ops.lightning_indexer import choose_entries, entry_tokens
from day0.runtime.ops.paged_attention import visible_keys


def block_scores(q: torch.Tensor, keys: torch.Tensor, visible: torch.Tensor, block: int) -> torch.Tensor:
    """Of each block the largest q . k among its visible tokens, [sequences, length, heads, blocks] float32.

    q [sequences, length, heads, head_dim]; keys [sequences, longest, head_dim]; visible [sequences, length, longest]
    bool. A block without a visible token scores -inf.
    """
    products = torch.einsum("nqhd,nsd->nqhs", q.float(), keys.float())
    products = products.masked_fill(~visible[:, :, None], float("-inf"))
    products = functional.pad(products, (0, -products.shape[-1] % block), value=float("-inf"))
    return products.unflatten(-1, (-1, block)).amax(-1)


def block_indexer_topk(
    q: torch.Tensor,
    index_cache: torch.Tensor,
    slots: torch.Tensor,
    context: torch.Tensor,
    top_k: int,
    block: int,
    local_blocks: int,
) -> torch.Tensor:
    """The blocks that each new token's heads read, [sequences, length, heads, chosen] int64: ascending, then -1.

    q [sequences, length, heads, head_dim]; index_cache [rows, head_dim]. The token's own block and the
    `local_blocks` - 1 before it are always among the `top_k`; of equal scores those that come first are taken.
    """
    sequences, length, heads, _ = q.shape
    longest = slots.shape[1]
    blocks = -(-longest // block)
    own = (context[:, None] + torch.arange(length, device=q.device)) // block  # the block of each new token
    visible = visible_keys(context, length, longest, None)
    numbers = torch.arange(blocks, device=q.device)
    local = (numbers <= own[..., None]) & (numbers > own[..., None] - local_blocks)
    chosen = slots.new_empty(sequences, length, heads, min(top_k, blocks))
    keys = index_cache[slots]
    for rows in row_blocks(length, sequences * heads * longest):
        scores = block_scores(q[:, rows], keys, visible[:, rows], block)
        scores = scores.masked_fill(local[:, rows, None], float("inf"))
        chosen[:, rows] = choose_entries(scores, (own[:, rows, None] + 1).expand(scores.shape[:-1]), top_k)
    return chosen


def block_sparse_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
    context: torch.Tensor,
    ids: torch.Tensor,
    scale: float,
    block: int,
) -> torch.Tensor:
    """Causal grouped-query attention of each head over the chosen blocks, float32 inside; q's shape and dtype.

    q [sequences, length, heads, head_dim]; k_cache, v_cache [slots, kv_heads, head_dim]; ids [sequences, length,
    index_heads, chosen] int64 with -1 for none, one row for as many key/value heads as there are of them to each.
    """
    length, heads = q.shape[1:3]
    kv_heads = k_cache.shape[1]
    tokens = entry_tokens(ids.flatten(2), block, context).unflatten(-1, (ids.shape[2], -1))
    tokens = tokens.repeat_interleave(kv_heads // ids.shape[2], dim=2)  # [sequences, length, kv_heads, tokens]
    grouped = q.float().unflatten(2, (kv_heads, heads // kv_heads))
    each = torch.arange(kv_heads, device=q.device)[:, None]
    output = torch.empty_like(q)
    for rows in row_blocks(length, 2 * q.shape[0] * tokens.shape[2] * tokens.shape[3] * q.shape[-1]):
        read = tokens[:, rows]
        places = slots.gather(1, read.clamp(min=0).flatten(1)).view(read.shape)
        keys, values = k_cache[places, each].float(), v_cache[places, each].float()
        scores = torch.einsum("nqkgd,nqksd->nqkgs", grouped[:, rows], keys) * scale
        weights = torch.softmax(scores.masked_fill(read[:, :, :, None] < 0, float("-inf")), dim=-1)
        output[:, rows] = torch.einsum("nqkgs,nqksd->nqkgd", weights, values).flatten(2, 3).to(q.dtype)
    return output
