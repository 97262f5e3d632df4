"""Lightning attention: a linear attention whose state forgets at a fixed rate per head (arXiv 2401.04658).

Per head, with state S [key, value] and slope s >= 0:
    S <- exp(-s) S + k_t v_t^T;   o_t = S^T q_t
q, k and v are [sequences, length, heads, head_dim]; slope [heads]; the state [sequences, heads, key, value] in float32.
"""

from __future__ import annotations

import torch

from day0.runtime.ops.decay import log_decay_between

CHUNK = 64
"""Tokens per chunk."""


def lightning_recurrent(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slope: torch.Tensor, state: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The recurrence itself, token by token, float32 inside. Gives outputs like v and the new state."""
    decay = (-slope.float()).exp()[:, None, None]
    outputs = []
    for t in range(q.shape[1]):
        state = state * decay + k[:, t, ..., None].float() * v[:, t, :, None].float()
        outputs.append(torch.einsum("nhkv,nhk->nhv", state, q[:, t].float()))
    return torch.stack(outputs, dim=1).to(v.dtype), state


def lightning_chunk(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slope: torch.Tensor, state: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same in chunks: decayed products inside one, the state between them; shapes as `lightning_recurrent`."""
    queries, keys, values = (x.float().transpose(1, 2) for x in (q, k, v))  # [sequences, heads, length, head_dim]
    outputs = []
    for start in range(0, q.shape[1], CHUNK):
        part = slice(start, start + CHUNK)
        own_q, own_k, own_v = queries[:, :, part], keys[:, :, part], values[:, :, part]
        g = (-slope.float())[:, None].expand(-1, own_q.shape[2])  # [heads, length]
        between = log_decay_between(g).exp()
        from_start = g.cumsum(dim=-1).exp()[..., None]
        outputs.append(own_q * from_start @ state + (own_q @ own_k.mT * between) @ own_v)
        state = state * from_start[:, -1:] + (own_k * between[:, -1, :, None]).mT @ own_v
    return torch.cat(outputs, dim=2).transpose(1, 2).to(v.dtype), state
