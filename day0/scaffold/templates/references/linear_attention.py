"""References of linear attention, token by token: the recurrence is the definition."""

import torch
from torch.nn import functional

from day0.scaffold.templates.references.rows import sequences


def causal_conv1d(x, weight, state, starts, state_slots, *, activation):
    return causal_conv1d_bias(
        x, weight, weight.new_zeros(weight.shape[0]), state, starts, state_slots, activation=activation
    )


def causal_conv1d_bias(x, weight, bias, state, starts, state_slots, *, activation):
    y, state_out, taps = torch.empty_like(x), state.clone(), weight.shape[1]
    for rows, slot in zip(sequences(starts), state_slots.tolist(), strict=True):
        inputs = torch.cat((state[slot].T.to(x.dtype), x[rows]))  # [taps - 1 + length, width]
        windows = inputs.float().unfold(0, taps, 1)  # [length, width, taps]
        found = (windows * weight.float()).sum(-1) + bias.float()
        y[rows] = {None: found, "silu": functional.silu(found)}[activation].to(x.dtype)
        state_out[slot] = inputs[inputs.shape[0] - taps + 1 :].T.to(state.dtype)
    return y, state_out


def kda_gate(z, a_log, dt_bias, b, *, lower_bound):
    rate, shifted = a_log.float().exp()[:, None], z.float() + dt_bias.float()
    decay = -rate * functional.softplus(shifted) if lower_bound is None else lower_bound * torch.sigmoid(rate * shifted)
    return decay, torch.sigmoid(b.float())


def kda_chunk(q, k, v, g, beta, state, starts, state_slots, *, scale):
    return kda_recurrent(q, k, v, g, beta, state, starts, state_slots, scale=scale)


def kda_recurrent(q, k, v, g, beta, state, starts, state_slots, *, scale):
    y, state_out = torch.empty_like(v, dtype=torch.float32), state.clone()
    for rows, slot in zip(sequences(starts), state_slots.tolist(), strict=True):
        memory = state[slot]  # [heads, head_dim, value_dim]
        for t in range(rows.start, rows.stop):
            memory = memory * g[t].exp()[..., None]
            found = torch.einsum("hkv,hk->hv", memory, k[t])
            memory = memory + torch.einsum("hk,hv->hkv", k[t], beta[t][:, None] * (v[t] - found))
            y[t] = scale * torch.einsum("hkv,hk->hv", memory, q[t])
        state_out[slot] = memory
    return y, state_out


def gated_delta_gate(a, a_log, dt_bias, b, *, strength):
    decay = -a_log.float().exp() * functional.softplus(a.float() + dt_bias.float())
    return decay, strength * torch.sigmoid(b.float())


def gated_delta_chunk(q, k, v, g, beta, state, starts, state_slots, *, scale):
    return gated_delta_recurrent(q, k, v, g, beta, state, starts, state_slots, scale=scale)


def gated_delta_recurrent(q, k, v, g, beta, state, starts, state_slots, *, scale):
    group = v.shape[1] // q.shape[1]
    wide_q, wide_k = (x.repeat_interleave(group, dim=1) for x in (q, k))
    decay = g[..., None].expand(*g.shape, q.shape[-1])
    y, state_out = kda_recurrent(wide_q, wide_k, v.float(), decay, beta, state, starts, state_slots, scale=scale)
    return y.to(v.dtype), state_out


def lightning_chunk(q, k, v, slope, state, starts, state_slots):
    return lightning_recurrent(q, k, v, slope, state, starts, state_slots)


def lightning_recurrent(q, k, v, slope, state, starts, state_slots):
    y, state_out, decay = torch.empty_like(v), state.clone(), torch.exp(-slope)[:, None, None]
    for rows, slot in zip(sequences(starts), state_slots.tolist(), strict=True):
        memory = state[slot]
        for t in range(rows.start, rows.stop):
            memory = decay * memory + torch.einsum("hk,hv->hkv", k[t].float(), v[t].float())
            y[t] = torch.einsum("hkv,hk->hv", memory, q[t].float()).to(v.dtype)
        state_out[slot] = memory
    return y, state_out
