"""Selective state space: every channel has a diagonal state of its own (Mamba, arXiv 2312.00752).

Per channel, with state h [state_size], step size s = softplus(dt + dt_bias) and a = exp(a_log):
    h <- exp(-a s_t) h + s_t x_t b_t;   y_t = (c_t . h + d x_t) silu(z_t)
x, dt and z are [sequences, length, width]; b and c [sequences, length, state_size]; a_log [width, state_size]; d and
dt_bias [width]; the state [sequences, width, state_size] is float32.
"""

from __future__ import annotations

import torch
from torch.nn import functional

CHUNK = 64
"""Tokens per chunk: its [chunk, width, state_size] table is the largest temporary."""


def selective_state_update(
    x: torch.Tensor,
    dt: torch.Tensor,
    z: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    a_log: torch.Tensor,
    d: torch.Tensor,
    dt_bias: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The recurrence itself, token by token, float32 inside. Gives outputs like x and the new state."""
    decays, writes = _terms(x, dt, b, a_log, dt_bias)
    reads = []
    for t in range(x.shape[1]):
        state = state * decays[:, t] + writes[:, t]
        reads.append(torch.einsum("nws,ns->nw", state, c[:, t].float()))
    return _gated(torch.stack(reads, dim=1), x, z, d), state


def selective_scan(
    x: torch.Tensor,
    dt: torch.Tensor,
    z: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    a_log: torch.Tensor,
    d: torch.Tensor,
    dt_bias: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same as a prefix scan over each chunk; shapes as `selective_state_update`.

    Two steps (decay, write) in a row are one, (f1 f2, f2 w1 + w2), so that all prefixes take log2(chunk) rounds
    (Hillis and Steele 1986). Decays are only ever multiplied, never divided by: nothing overflows.
    """
    reads = []
    for start in range(0, x.shape[1], CHUNK):
        part = slice(start, start + CHUNK)
        decays, writes = _terms(x[:, part], dt[:, part], b[:, part], a_log, dt_bias)
        span = 1
        while span < decays.shape[1]:
            earlier_writes, earlier_decays = writes[:, :-span], decays[:, :-span]
            writes = torch.cat((writes[:, :span], writes[:, span:] + decays[:, span:] * earlier_writes), dim=1)
            decays = torch.cat((decays[:, :span], decays[:, span:] * earlier_decays), dim=1)
            span *= 2
        states = decays * state[:, None] + writes
        reads.append(torch.einsum("ntws,nts->ntw", states, c[:, part].float()))
        state = states[:, -1]
    return _gated(torch.cat(reads, dim=1), x, z, d), state


def _terms(
    x: torch.Tensor, dt: torch.Tensor, b: torch.Tensor, a_log: torch.Tensor, dt_bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """What each token multiplies the state by and adds to it, [sequences, length, width, state_size]."""
    steps = functional.softplus(dt.float() + dt_bias.float())[..., None]
    decays = (-a_log.float().exp() * steps).exp()
    return decays, steps * x.float()[..., None] * b.float()[:, :, None]


def _gated(reads: torch.Tensor, x: torch.Tensor, z: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    return ((reads + d.float() * x.float()) * functional.silu(z.float())).to(x.dtype)
