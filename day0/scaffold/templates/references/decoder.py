"""References of every decoder's operators."""

import torch
from torch.nn import functional

from day0.scaffold.templates.references.rows import attend, causal, sequences


def embedding_lookup(ids, weight):
    return weight[ids]


def embedding_scatter(x, rows, images):
    y = x.clone()
    y[rows] = images
    return y


def embedding_scatter_add(x, rows, images):
    return x.index_add(0, rows, images.to(x.dtype))


def linear(x, weight, bias):
    y = x.float() @ weight.float().T
    return (y if bias is None else y + bias.float()).to(x.dtype)


def head_linear(x, weight):
    return torch.einsum("thi,hoi->tho", x.float(), weight.float()).to(x.dtype)


def lm_head(x, weight):
    return (x.float() @ weight.float().T).to(x.dtype)


def rms_norm(x, weight, *, eps):
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (normed.to(x.dtype) * weight).to(x.dtype)


def qk_norm(q, k, q_weight, k_weight, *, eps, form):
    if form not in ("head", "unit"):
        raise NotImplementedError(f"form {form}: its weights are not those of the contract")
    weights = (q_weight, k_weight) if form == "head" else (torch.ones_like(q_weight), torch.ones_like(k_weight))
    return rms_norm(q, weights[0], eps=eps), rms_norm(k, weights[1], eps=eps)


def l2_norm(x):
    wide = x.float()
    return wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + 1e-6)


def gated_rms_norm(x, weight, gate, *, eps, activation):
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()
    opened = {"sigmoid": torch.sigmoid, "silu": functional.silu}[activation](gate.float())
    return normed * opened


def residual_add(x, branch):
    return (x.float() + branch.float()).to(x.dtype)


def attention_residual_mix(candidates, norm_weight, query, *, eps, block_size):
    wide = candidates.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    scores = normed @ (norm_weight.float() * query.float())  # [candidates, tokens]
    weights = torch.softmax(scores, dim=0)
    return torch.einsum("ct,ctw->tw", weights, wide).to(candidates.dtype), weights.T.contiguous()


def rope_table(positions, *, rope_pairs, theta, scaling):
    if scaling != "none":
        raise NotImplementedError(f"the frequencies of scaling {scaling} take numbers that the contract leaves out")
    frequencies = theta ** -(torch.arange(rope_pairs) / rope_pairs)
    angles = positions.float()[:, None] * frequencies
    return angles.cos(), angles.sin()


def rope(x, cos, sin, *, layout):
    pairs = cos.shape[-1]
    turned, kept = x[..., : 2 * pairs].float(), x[..., 2 * pairs :]
    cos, sin = cos[:, None], sin[:, None]
    if layout == "neox":
        first, second = turned[..., :pairs], turned[..., pairs:]
        y = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    else:
        first, second = turned[..., ::2], turned[..., 1::2]
        y = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(-2)
    return torch.cat((y.to(x.dtype), kept), dim=-1)


def paged_cache_write(x, slots, cache):
    cache_out = cache.clone()
    cache_out[slots] = x
    return cache_out


def paged_gqa_attention(q, k_cache, v_cache, starts, slots, context, *, scale, window):
    y = torch.empty_like(q)
    for rows, table, before in zip(sequences(starts), slots, context.tolist(), strict=True):
        seen = causal(rows.stop - rows.start, before, window)
        used = table[: seen.shape[1]]
        y[rows] = attend(q[rows], k_cache[used], v_cache[used], seen, scale).to(q.dtype)
    return y


def paged_mla_attention(q_latent, q_rope, latent_cache, starts, slots, context, *, scale):
    y, latent = torch.empty_like(q_latent), q_latent.shape[-1]
    for rows, table, before in zip(sequences(starts), slots, context.tolist(), strict=True):
        seen = causal(rows.stop - rows.start, before)
        cached = latent_cache[table[: seen.shape[1]], None]
        q = torch.cat((q_latent[rows], q_rope[rows]), dim=-1)
        y[rows] = attend(q, cached, cached[..., :latent], seen, scale).to(y.dtype)
    return y


def sigmoid_gate(x, gate):
    return (x.float() * torch.sigmoid(gate.float())).to(x.dtype)


def head_sigmoid_gate(x, gate):
    return (x.float() * torch.sigmoid(gate.float())[..., None]).to(x.dtype)


def query_temperature(q, positions, *, floor, growth, offset):
    steps = torch.floor((positions.float() + offset) / floor)
    return (q.float() * (1.0 + growth * torch.log1p(steps))[:, None, None]).to(q.dtype)


def constant_scale(x, *, factor):
    return (x.float() * factor).to(x.dtype)


def silu(x):
    return functional.silu(x.float()).to(x.dtype)


def silu_and_mul(gate, up):
    return (functional.silu(gate.float()) * up.float()).to(gate.dtype)


def clamped_silu_and_mul(gate, up, *, limit):
    return (functional.silu(gate.float().clamp(max=limit)) * up.float().clamp(-limit, limit)).to(gate.dtype)


def silu_clamped_and_mul(gate, up, *, limit):
    return (functional.silu(gate.float()).clamp(max=limit) * up.float().clamp(-limit, limit)).to(gate.dtype)


def token_sigmoid_gate(x, gate):
    return (x.float() * torch.sigmoid(gate.float())[:, None]).to(x.dtype)


def gelu_and_mul(gate, up, *, approximate):
    form = "tanh" if approximate == "tanh" else "none"
    return (functional.gelu(gate.float(), approximate=form) * up.float()).to(gate.dtype)


def situ_and_mul(gate, up, *, beta, linear_beta):
    wide, linear = gate.float(), up.float()
    if linear_beta is not None:
        linear = linear_beta * torch.tanh(linear / linear_beta)
    return (beta * torch.tanh(wide / beta) * torch.sigmoid(wide) * linear).to(gate.dtype)


def gelu(x, *, approximate):
    return functional.gelu(x.float(), approximate="tanh" if approximate == "tanh" else "none").to(x.dtype)


def sampling(logits):
    """The largest logit, ties to the earlier; what is drawn at random has no single right answer."""
    return logits.sort(dim=-1, descending=True, stable=True).indices[:, 0]


def quick_gelu(x):
    return (x.float() * torch.sigmoid(1.702 * x.float())).to(x.dtype)


def relu(x):
    return torch.relu(x)
