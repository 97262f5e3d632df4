"""Kimi Delta Attention: a delta-rule recurrence whose state decays per key channel (arXiv 2510.26692).

Per head, with state S [key, value], log decay g <= 0, write strength beta, and q, k of unit length:
    S <- diag(exp(g_t)) S;   S <- S + beta_t k_t (v_t - S^T k_t)^T;   o_t = scale S^T q_t
All tensors are [sequences, length, heads, head_dim] and float32; the state is [sequences, heads, key, value].
"""

from __future__ import annotations

import torch
from torch.nn import functional

from day0.runtime.ops.decay import log_decay_between

CHUNK = 32
"""Tokens per chunk: its [chunk, chunk, key] decay table per head is the largest temporary."""


def kda_gate(
    z: torch.Tensor, a_log: torch.Tensor, dt_bias: torch.Tensor, b: torch.Tensor, lower_bound: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log decay g per head and key channel, and write strength beta per head, both float32.

    z [..., heads, head_dim]; a_log [heads]; dt_bias [heads, head_dim]; b [..., heads]. With a bound (Kimi K3),
    g = bound * sigmoid(exp(a_log) (z + dt_bias)) lies in (bound, 0); without (Kimi Linear),
    g = -exp(a_log) softplus(z + dt_bias).
    """
    rate = a_log.float().exp()[:, None]
    shifted = z.float() + dt_bias.float()
    if lower_bound is None:
        g = -rate * functional.softplus(shifted)
    else:
        g = lower_bound * torch.sigmoid(rate * shifted)
    return g, torch.sigmoid(b.float())


def kda_recurrent(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The recurrence itself, token by token; beta [sequences, length, heads]. Gives outputs and the new state."""
    outputs = []
    for t in range(q.shape[1]):
        state = state * g[:, t].exp()[..., None]
        predicted = torch.einsum("nhkv,nhk->nhv", state, k[:, t])
        written = beta[:, t, :, None] * (v[:, t] - predicted)
        state = state + k[:, t, ..., None] * written[..., None, :]
        outputs.append(torch.einsum("nhkv,nhk->nhv", state, q[:, t]) * scale)
    return torch.stack(outputs, dim=1), state


def kda_chunk(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same in chunks: inside one, the writes solve a unit lower triangular system; shapes as `kda_recurrent`."""
    outputs = []
    for start in range(0, q.shape[1], CHUNK):
        part = slice(start, start + CHUNK)
        output, state = _one_chunk(q[:, part], k[:, part], v[:, part], g[:, part], beta[:, part], state)
        outputs.append(output * scale)
    return torch.cat(outputs, dim=1), state


def _one_chunk(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor, state: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """With G the running sum of g and u_i the writes: (I + beta A) u = beta (v - (e^G k) S0), o = (e^G q) S0 + P u.

    A[t, i] = sum_c k_t k_i e^(G_t - G_i) for i < t, and P likewise with q_t for i <= t. The exponents G_t - G_i are
    summed one by one (`log_decay_between`): none is above 0, and none is a difference of large numbers.
    """
    q, k, v, g = (x.transpose(1, 2) for x in (q, k, v, g))  # [sequences, heads, length, dim]
    beta = beta.transpose(1, 2)[..., None]  # [sequences, heads, length, 1]
    between = log_decay_between(g.mT).exp()  # [sequences, heads, key, t, i]
    among_keys = torch.einsum("nhtc,nhic,nhcti->nhti", k, k, between)
    among_queries = torch.einsum("nhtc,nhic,nhcti->nhti", q, k, between)
    decay = g.cumsum(dim=2).exp()
    right = beta * (v - (k * decay) @ state)
    # The solver takes the diagonal for ones and what is above it for zeros.
    writes = torch.linalg.solve_triangular(beta * among_keys, right, upper=False, unitriangular=True)
    output = (q * decay) @ state + among_queries @ writes
    to_end = between[..., -1, :].mT
    state = state * decay[:, :, -1, :, None] + (k * to_end).transpose(2, 3) @ writes
    return output.transpose(1, 2), state
