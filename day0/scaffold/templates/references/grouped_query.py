"""References of grouped-query decoders beyond the plain one."""

import torch
from torch.nn import functional

from day0.scaffold.templates.references.rows import attend, causal, sequences


def paged_gqa_attention_variant(q, k_cache, v_cache, sinks, starts, slots, context, *, scale, window, chunked, softcap):
    y = q.new_empty(*q.shape[:2], v_cache.shape[-1])
    for rows, table, before in zip(sequences(starts), slots, context.tolist(), strict=True):
        seen = causal(rows.stop - rows.start, before, window, chunked)
        used = table[: seen.shape[1]]
        y[rows] = attend(q[rows], k_cache[used], v_cache[used], seen, scale, sinks, softcap).to(q.dtype)
    return y


def cross_attention(q, k, v, visible, *, scale):
    return attend(q, k, v, visible.bool(), scale).to(q.dtype)


def multi_axis_rope_table(positions, *, rope_pairs, theta, scaling, sections, interleaved):
    if scaling != "none":
        raise NotImplementedError(f"the frequencies of scaling {scaling} take numbers that the contract leaves out")
    sizes = [int(size) for size in sections.split()]
    axis = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    if interleaved:
        axis = torch.zeros(rope_pairs, dtype=torch.int64)
        for number, size in list(enumerate(sizes))[1:]:
            axis[number : 3 * size : 3] = number
    frequencies = theta ** -(torch.arange(rope_pairs) / rope_pairs)
    angles = positions.float()[:, axis] * frequencies
    return angles.cos(), angles.sin()


def softplus_gate(x, gate):
    return (x.float() * functional.softplus(gate.float())).to(x.dtype)


def head_softplus_gate(x, gate):
    return (x.float() * functional.softplus(gate.float())[..., None]).to(x.dtype)


def tanh_gate(x, gate):
    return (x.float() * torch.tanh(gate.float())).to(x.dtype)


def softcap(x, *, softcap):
    return (softcap * torch.tanh(x.float() / softcap)).to(x.dtype)


def unit_rms_norm(x, *, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype)


def rms_norm_plus_one(x, weight, *, eps):
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (normed * (1.0 + weight.float())).to(x.dtype)


def layer_norm_without_bias(x, weight, *, eps):
    return (functional.layer_norm(x.float(), x.shape[-1:], eps=eps) * weight.float()).to(x.dtype)


def learnt_scale(x, scale):
    return (x.float() * scale.float()).to(x.dtype)


def gated_residual_add(x, branch, gate, *, temperature, eps):
    taken = torch.sigmoid(gate.float() / temperature)
    kept = torch.sqrt((1.0 - taken.square()).clamp(min=eps))
    return (kept * x.float() + taken * branch.float()).to(x.dtype)


def swiglu_oai_and_mul(gate, up, *, alpha, limit):
    bounded = gate.float().clamp(max=limit)
    return (bounded * torch.sigmoid(alpha * bounded) * (up.float().clamp(-limit, limit) + 1.0)).to(gate.dtype)


def moe_expert_scale(weights, ids, scale):
    return weights * scale.float()[ids]


def biased_lm_head(x, weight, bias):
    return (x.float() @ weight.float().T + bias.float()).to(x.dtype)


def per_layer_embedding_lookup(ids, weight):
    return weight[ids]
