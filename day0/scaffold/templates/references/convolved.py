"""References of attention with short convolutions."""

import torch

from day0.scaffold.templates.references.linear_attention import causal_conv1d
from day0.scaffold.templates.references.rows import attend, causal, sequences


def causal_head_conv1d(x, weight, bias, state, starts, state_slots):
    y, state_out = torch.empty_like(x), state.clone()
    head_dim, taps = weight.shape[1:]
    heads = weight.float().unflatten(0, (-1, head_dim))  # [heads, out, in, taps]
    for rows, slot in zip(sequences(starts), state_slots.tolist(), strict=True):
        inputs = torch.cat((state[slot].T.to(x.dtype), x[rows]))
        windows = inputs.float().unfold(0, taps, 1).unflatten(1, (-1, head_dim))  # [length, heads, in, taps]
        y[rows] = (torch.einsum("lhit,hoit->lho", windows, heads).flatten(1) + bias.float()).to(x.dtype)
        state_out[slot] = inputs[inputs.shape[0] - taps + 1 :].T.to(state.dtype)
    return y, state_out


def residual_causal_conv1d(x, weight, state, starts, state_slots):
    found, state_out = causal_conv1d(x.float(), weight, state, starts, state_slots, activation=None)
    return (x.float() + found).to(x.dtype), state_out


def query_key_mean(q, k):
    group = q.shape[1] // k.shape[1]
    mean = (q.float() + k.float().repeat_interleave(group, dim=1)) / 2
    return mean.to(q.dtype), mean.unflatten(1, (-1, group)).mean(2).to(k.dtype)


def unit_length_heads(q, k, key_scale):
    """A head of zeros stays one."""
    q_out, k_out = (_unit(x.float()) * x.shape[-1] ** 0.5 for x in (q, k))
    return q_out.to(q.dtype), (k_out * key_scale.float()[:, None]).to(k.dtype)


def _unit(x):
    return x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12)


def token_delay(x, state, starts, state_slots):
    y, state_out = torch.empty_like(x), state.clone()
    for rows, slot in zip(sequences(starts), state_slots.tolist(), strict=True):
        y[rows] = torch.cat((state[slot][None].to(x.dtype), x[rows][:-1]))
        state_out[slot] = x[rows][-1].to(state.dtype)
    return y, state_out


def paged_relative_attention(q, r, bias, k_cache, v_cache, starts, slots, context, *, scale, window):
    """A distance beyond those that have a bias has none."""
    y, extent = torch.empty_like(q), bias.shape[1]
    biases = r.float() @ bias.float()  # [tokens, heads, extent]
    for rows, table, before in zip(sequences(starts), slots, context.tolist(), strict=True):
        seen = causal(rows.stop - rows.start, before, window)
        keys = torch.arange(seen.shape[1])
        distance = (before + torch.arange(rows.stop - rows.start)[:, None] - keys).clamp(min=0)
        found = biases[rows].transpose(0, 1).gather(-1, distance.clamp(max=extent - 1).expand(q.shape[1], -1, -1))
        used = table[: seen.shape[1]]
        near = torch.where(distance < extent, found, 0.0)
        y[rows] = attend(q[rows], k_cache[used], v_cache[used], seen, scale, bias=near).to(q.dtype)
    return y


def log_temperature(q, positions, *, floor, growth):
    steps = torch.log(((positions.float() + 1.0) / floor).clamp(min=1.0))
    return (q.float() * (1.0 + growth * steps)[:, None, None]).to(q.dtype)
