"""References of state spaces, and of the pointwise operators and norms around them."""

import torch
from torch.nn import functional

from day0.scaffold.templates.references.rows import sequences


def selective_scan(x, dt, z, b, c, a_log, d, dt_bias, state, starts, state_slots):
    return selective_state_update(x, dt, z, b, c, a_log, d, dt_bias, state, starts, state_slots)


def selective_state_update(x, dt, z, b, c, a_log, d, dt_bias, state, starts, state_slots):
    y, state_out, rate = torch.empty_like(x), state.clone(), -a_log.float().exp()
    step = functional.softplus(dt.float() + dt_bias.float())
    for rows, slot in zip(sequences(starts), state_slots.tolist(), strict=True):
        memory = state[slot]  # [width, state_size]
        for t in range(rows.start, rows.stop):
            written = (step[t] * x[t].float())[:, None] * b[t].float()
            memory = torch.exp(step[t][:, None] * rate) * memory + written
            read = memory @ c[t].float() + d * x[t].float()
            y[t] = (read * functional.silu(z[t].float())).to(x.dtype)
        state_out[slot] = memory
    return y, state_out


def ssd_chunk_scan(x, dt, b, c, a_log, d, dt_bias, state, starts, state_slots, *, step_min, step_max):
    return ssd_state_update(
        x, dt, b, c, a_log, d, dt_bias, state, starts, state_slots, step_min=step_min, step_max=step_max
    )


def ssd_state_update(x, dt, b, c, a_log, d, dt_bias, state, starts, state_slots, *, step_min, step_max):
    y, state_out, group = torch.empty_like(x), state.clone(), x.shape[1] // b.shape[1]
    step = functional.softplus(dt.float() + dt_bias.float()).clamp(step_min, step_max)  # [tokens, heads]
    write, read = (part.float().repeat_interleave(group, dim=1) for part in (b, c))
    for rows, slot in zip(sequences(starts), state_slots.tolist(), strict=True):
        memory = state[slot]  # [heads, head_dim, state_size]
        for t in range(rows.start, rows.stop):
            decay = torch.exp(-step[t] * a_log.exp())[:, None, None]
            memory = decay * memory + torch.einsum("hd,hs->hds", step[t][:, None] * x[t].float(), write[t])
            y[t] = (torch.einsum("hds,hs->hd", memory, read[t]) + d[:, None] * x[t].float()).to(x.dtype)
        state_out[slot] = memory
    return y, state_out


def gated_group_rms_norm(x, gate, weight, *, eps, norm_groups, gate_first):
    opened, wide = functional.silu(gate.float()), x.float()
    if gate_first:
        return _normed_groups(wide * opened, weight, eps, norm_groups).to(x.dtype)
    return (_normed_groups(wide, weight, eps, norm_groups) * opened).to(x.dtype)


def group_rms_norm(x, weight, *, eps, norm_groups):
    return _normed_groups(x.float(), weight, eps, norm_groups).to(x.dtype)


def _normed_groups(wide, weight, eps, norm_groups):
    groups = wide.unflatten(-1, (norm_groups, -1))
    return (groups * torch.rsqrt(groups.square().mean(-1, keepdim=True) + eps)).flatten(-2) * weight.float()


def relu2(x):
    return torch.relu(x.float()).square().to(x.dtype)


def multiply(x, gate):
    return (x.float() * gate.float()).to(x.dtype)


def weighed_residual_add(x, y, *, skip, branch, normed):
    return (skip * x.float() + branch * y.float()).to(x.dtype)


def affine_residual_add(x, y, scale, shift, y_scale, y_shift):
    return (x + shift.float()) * scale.float() + (y.float() + y_shift.float()) * y_scale.float()
