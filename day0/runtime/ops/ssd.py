"""State space duality: a state space with one decay and one step size per head (Mamba-2, arXiv 2405.21060).

Per head, with state H [head_dim, state_size], a = exp(a_log) and step size s = softplus(dt + dt_bias) in its bounds:
    H <- exp(-a s_t) H + s_t x_t b_t^T;   y_t = H c_t + d x_t
x is [sequences, length, heads, head_dim] and dt [sequences, length, heads]; b and c [sequences, length, groups,
state_size] are shared by consecutive heads in equal groups; a_log, d and dt_bias [heads]; the state [sequences, heads,
head_dim, state_size] is float32. `step_max` None is no bound.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from day0.runtime.ops.decay import log_decay_between

CHUNK = 64
"""Tokens per chunk."""


def ssd_state_update(
    x: torch.Tensor,
    dt: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    a_log: torch.Tensor,
    d: torch.Tensor,
    dt_bias: torch.Tensor,
    state: torch.Tensor,
    step_min: float,
    step_max: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The recurrence itself, token by token, float32 inside. Gives outputs like x and the new state."""
    steps = _steps(dt, dt_bias, step_min, step_max)
    decays = (-a_log.float().exp() * steps).exp()
    shared = x.shape[2] // b.shape[2]
    wide, writers, readers = x.float(), *(y.float().repeat_interleave(shared, dim=2) for y in (b, c))
    outputs = []
    for t in range(x.shape[1]):
        written = (steps[:, t, :, None] * wide[:, t])[..., None] * writers[:, t, :, None]
        state = state * decays[:, t, :, None, None] + written
        outputs.append(torch.einsum("nhps,nhs->nhp", state, readers[:, t]) + d.float()[:, None] * wide[:, t])
    return torch.stack(outputs, dim=1).to(x.dtype), state


def ssd_chunk_scan(
    x: torch.Tensor,
    dt: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    a_log: torch.Tensor,
    d: torch.Tensor,
    dt_bias: torch.Tensor,
    state: torch.Tensor,
    step_min: float,
    step_max: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same in chunks: decayed products of c and b inside one, the state between; shapes as `ssd_state_update`."""
    groups = (b.shape[2], x.shape[2] // b.shape[2])
    steps = _steps(dt, dt_bias, step_min, step_max)
    g = (-a_log.float().exp() * steps).transpose(1, 2).unflatten(1, groups)  # [sequences, groups, sharing, length]
    wide = x.float()
    stepped = (wide * steps[..., None]).transpose(1, 2).unflatten(1, groups)
    writers, readers = (y.float().transpose(1, 2)[:, :, None] for y in (b, c))
    states = state.unflatten(1, groups)
    outputs = []
    for start in range(0, x.shape[1], CHUNK):
        part = slice(start, start + CHUNK)
        output, states = _one_chunk(
            stepped[..., part, :], writers[..., part, :], readers[..., part, :], g[..., part], states
        )
        outputs.append(output)
    y = torch.cat(outputs, dim=3).flatten(1, 2).transpose(1, 2) + d.float()[:, None] * wide
    return y.to(x.dtype), states.flatten(1, 2)


def _one_chunk(
    x: torch.Tensor, b: torch.Tensor, c: torch.Tensor, g: torch.Tensor, state: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """x [sequences, groups, sharing, length, head_dim], times its steps; b, c [sequences, groups, 1, length, size]."""
    between = log_decay_between(g).exp()
    from_start = g.cumsum(dim=-1).exp()[..., None]
    output = (c * from_start) @ state.mT + (c @ b.mT * between) @ x
    to_end = between[..., -1, :, None]
    return output, state * from_start[..., -1:, :] + (x * to_end).mT @ b


def _steps(dt: torch.Tensor, dt_bias: torch.Tensor, step_min: float, step_max: float | None) -> torch.Tensor:
    return functional.softplus(dt.float() + dt_bias.float()).clamp(step_min, step_max)
