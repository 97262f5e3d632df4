"""Softmax attention over cached latents in absorbed form: all tokens, a window, or those that an indexer chose.

Every head reads one row per token, the normed latent first and the shared key slice last (DeepSeek-V2, section 2.1).
All functions work on one group of sequences with as many new tokens each: `slots` [sequences, longest] names the
cache rows of each sequence in order, `context` [sequences] how many of them came before the new tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from day0.runtime.ops.paged_attention import visible_keys

BLOCK_ELEMENTS = 1 << 24
"""Float32 numbers that a step may spend on scores or gathered rows at once (64 MiB); more rows are done in turn."""


def paged_mla_attention(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    latent_cache: torch.Tensor,
    slots: torch.Tensor,
    context: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Causal attention over all tokens.

    q_latent [sequences, length, heads, latent]; q_rope [sequences, length, heads, rope]; latent_cache
    [slots, latent + rope]. Gives [sequences, length, heads, latent] in q_latent's dtype.
    """
    return window_mla_attention(q_latent, q_rope, latent_cache, slots, context, scale, None, None)


def window_mla_attention(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    latent_cache: torch.Tensor,
    slots: torch.Tensor,
    context: torch.Tensor,
    scale: float,
    window: int | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """The same over the last `window` tokens, the current one among them; `sinks` [heads] join the denominator."""
    rows = latent_cache[slots].float()  # [sequences, longest, cached]
    q = torch.cat((q_latent, q_rope), dim=-1).float()
    visible = visible_keys(context, q.shape[1], slots.shape[1], window)
    output = torch.empty_like(q_latent)
    for block in row_blocks(q.shape[1], q.shape[0] * q.shape[2] * rows.shape[1]):
        scores = torch.einsum("nqhd,nsd->nqhs", q[:, block], rows) * scale
        weights = masked_softmax(scores, visible[:, block, None], sinks)
        mixed = torch.einsum("nqhs,nsd->nqhd", weights, rows[..., : q_latent.shape[-1]])
        output[:, block] = mixed.to(q_latent.dtype)
    return output


def sparse_mla_attention(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    latent_cache: torch.Tensor,
    slots: torch.Tensor,
    ids: torch.Tensor,
    scale: float,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention over the tokens chosen for each query (DeepSeek-V3.2, arXiv 2512.02556).

    `ids` [sequences, length, chosen] int64 are places in the sequence, -1 where there are fewer. A query's choice
    must hold what it may see and at least one token.
    """
    sequences, length, heads, latent = q_latent.shape
    q = torch.cat((q_latent, q_rope), dim=-1).float()
    output = torch.empty_like(q_latent)
    per_row = sequences * ids.shape[-1] * (heads + latent_cache.shape[-1])
    for block in row_blocks(length, per_row):
        chosen = ids[:, block]
        places = slots.gather(1, chosen.clamp(min=0).flatten(1)).view(chosen.shape)
        rows = latent_cache[places].float()  # [sequences, rows, chosen, cached]
        scores = torch.einsum("nqhd,nqsd->nqhs", q[:, block], rows) * scale
        weights = masked_softmax(scores, (chosen >= 0)[:, :, None], sinks)
        mixed = torch.einsum("nqhs,nqsd->nqhd", weights, rows[..., :latent])
        output[:, block] = mixed.to(q_latent.dtype)
    return output


def chosen_keys(ids: torch.Tensor, longest: int) -> torch.Tensor:
    """The same choice as a mask: ids [..., chosen] with -1 for none -> [..., longest] bool."""
    mask = torch.zeros(*ids.shape[:-1], longest + 1, dtype=torch.bool, device=ids.device)
    return mask.scatter_(-1, torch.where(ids < 0, longest, ids), True)[..., :longest]


def row_blocks(length: int, elements_per_row: int) -> Iterator[slice]:
    """Slices of 0 .. length - 1 whose rows together take at most BLOCK_ELEMENTS, one row at the least."""
    step = max(1, BLOCK_ELEMENTS // max(1, elements_per_row))
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def masked_softmax(scores: torch.Tensor, visible: torch.Tensor, sinks: torch.Tensor | None) -> torch.Tensor:
    """Softmax of scores [sequences, rows, heads, keys] where `visible`; a sink is one more logit, without a value."""
    scores = scores.masked_fill(~visible, float("-inf"))
    if sinks is None:
        return torch.softmax(scores, dim=-1)
    column = sinks.float()[:, None].expand(*scores.shape[:-1], 1)
    return torch.softmax(torch.cat((scores, column), dim=-1), dim=-1)[..., :-1]
