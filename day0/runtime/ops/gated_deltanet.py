"""Gated delta rule: a linear attention whose state decays by one number per head (arXiv 2412.06464).

Per value head, with state S [key, value], log decay g <= 0, write strength beta, and q, k of unit length:
    S <- exp(g_t) S;   S <- S + beta_t k_t (v_t - S^T k_t)^T;   o_t = scale S^T q_t
q and k are [sequences, length, key_heads, head_dim] in float32 and shared by consecutive value heads in equal groups;
v is [sequences, length, value_heads, value_dim], the state [sequences, value_heads, head_dim, value_dim] in float32.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from day0.runtime.ops.decay import log_decay_between

CHUNK = 64
"""Tokens per chunk: its [chunk, chunk] tables per head stay small beside the products they save."""


def gated_delta_gate(
    a: torch.Tensor, a_log: torch.Tensor, dt_bias: torch.Tensor, b: torch.Tensor, strength: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log decay g = -exp(a_log) softplus(a + dt_bias) and write strength times sigmoid(b), [..., heads] float32.

    `strength` 2 allows the state negative eigenvalues (arXiv 2411.12537). a_log and dt_bias [heads].
    """
    g = -a_log.float().exp() * functional.softplus(a.float() + dt_bias.float())
    return g, strength * torch.sigmoid(b.float())


def gated_delta_recurrent(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The recurrence itself, token by token; g and beta [sequences, length, value_heads].

    Gives outputs like v and the new state.
    """
    shared = v.shape[2] // k.shape[2]
    q, k = q.repeat_interleave(shared, dim=2), k.repeat_interleave(shared, dim=2)
    outputs = []
    for t in range(q.shape[1]):
        state = state * g[:, t, :, None, None].exp()
        predicted = torch.einsum("nhkv,nhk->nhv", state, k[:, t])
        written = beta[:, t, :, None] * (v[:, t].float() - predicted)
        state = state + k[:, t, ..., None] * written[..., None, :]
        outputs.append(torch.einsum("nhkv,nhk->nhv", state, q[:, t]) * scale)
    return torch.stack(outputs, dim=1).to(v.dtype), state


def gated_delta_chunk(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same in chunks: inside one, the writes solve a unit lower triangular system (the UT form of DeltaNet,
    arXiv 2406.06484); shapes as `gated_delta_recurrent`.
    """
    groups = (k.shape[2], v.shape[2] // k.shape[2])
    q, k = (x.transpose(1, 2)[:, :, None] for x in (q, k))  # [sequences, key_heads, 1, length, head_dim]
    # [sequences, key_heads, sharing, length, ...]
    v_wide, g, beta = (x.float().transpose(1, 2).unflatten(1, groups) for x in (v, g, beta))
    states = state.unflatten(1, groups)
    outputs = []
    for start in range(0, q.shape[3], CHUNK):
        part = slice(start, start + CHUNK)
        output, states = _one_chunk(
            q[:, :, :, part], k[:, :, :, part], v_wide[:, :, :, part], g[..., part], beta[..., part, None], states
        )
        outputs.append(output * scale)
    return torch.cat(outputs, dim=3).flatten(1, 2).transpose(1, 2).to(v.dtype), states.flatten(1, 2)


def _one_chunk(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor, state: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """With D[t, i] the decay from i to t, D[t] that from before the chunk, and u_i the writes:
    (I + beta (K K^T * D)) u = beta (v - D[t] K S0), strictly below the diagonal, and o = D[t] Q S0 + (Q K^T * D) u.
    """
    between = log_decay_between(g).exp()
    from_start = g.cumsum(dim=-1).exp()[..., None]
    system = beta * (k @ k.mT * between)
    right = beta * (v - k * from_start @ state)
    # The solver takes the diagonal for ones and what is above it for zeros.
    writes = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    output = q * from_start @ state + (q @ k.mT * between) @ writes
    to_end = between[..., -1, :, None]
    return output, state * from_start[..., -1:, :] + (k * to_end).mT @ writes
