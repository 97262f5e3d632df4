"""References of routers and of experts. Ties go to the lowest expert number."""

import torch
from torch.nn import functional


def _largest(scores, count):
    return scores.sort(dim=-1, descending=True, stable=True).indices[..., :count]


def _weigh(scores, ids, renormalize, scaling_factor):
    weights = scores.gather(-1, ids)
    if renormalize:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return weights * scaling_factor


def _within_groups(scores, num_groups, topk_groups, best):
    """Scores of the groups whose `best` largest add up to most; -inf elsewhere."""
    if num_groups <= topk_groups:
        return scores
    grouped = scores.unflatten(-1, (num_groups, -1))
    worth = grouped.topk(min(best, grouped.shape[-1]), dim=-1).values.sum(-1)
    kept = torch.zeros_like(worth, dtype=torch.bool).scatter(-1, _largest(worth, topk_groups), True)
    return grouped.masked_fill(~kept[..., None], float("-inf")).flatten(-2)


def _route(scores, bias, top_k, renormalize, scaling_factor, correction_bias, num_groups, topk_groups, best=2):
    biased = scores + bias.float() if correction_bias else scores
    ids = _largest(_within_groups(biased, num_groups, topk_groups, best), top_k)
    return _weigh(scores, ids, renormalize, scaling_factor), ids


def moe_router_topk_softmax(
    logits, bias, *, top_k, renormalize, scaling_factor, correction_bias, num_groups, topk_groups
):
    scores = torch.softmax(logits.float(), dim=-1)
    return _route(scores, bias, top_k, renormalize, scaling_factor, correction_bias, num_groups, topk_groups)


def moe_router_group_best_softmax(
    logits, bias, *, top_k, renormalize, scaling_factor, correction_bias, num_groups, topk_groups
):
    scores = torch.softmax(logits.float(), dim=-1)
    return _route(scores, bias, top_k, renormalize, scaling_factor, correction_bias, num_groups, topk_groups, best=1)


def moe_router_topk_sigmoid_bias(
    logits, bias, *, top_k, renormalize, scaling_factor, correction_bias, num_groups, topk_groups
):
    scores = torch.sigmoid(logits.float())
    return _route(scores, bias, top_k, renormalize, scaling_factor, correction_bias, num_groups, topk_groups)


def moe_router_topk_sqrtsoftplus_bias(
    logits, bias, *, top_k, renormalize, scaling_factor, correction_bias, num_groups, topk_groups
):
    scores = functional.softplus(logits.float()).sqrt()
    return _route(scores, bias, top_k, renormalize, scaling_factor, correction_bias, num_groups, topk_groups)


def moe_router_hash(logits, token_ids, table, *, scoring, renormalize, scaling_factor):
    scores = {
        "softmax": lambda x: torch.softmax(x, dim=-1),
        "sigmoid": torch.sigmoid,
        "sqrtsoftplus": lambda x: functional.softplus(x).sqrt(),
    }[scoring](logits.float())
    ids = table[token_ids]
    return _weigh(scores, ids, renormalize, scaling_factor), ids


def moe_router_topk_logit_bias(logits, bias, *, top_k, renormalize, scaling_factor):
    ids = _largest(logits.float() + bias.float(), top_k)
    return _weigh(torch.sigmoid(logits.float()), ids, renormalize, scaling_factor), ids


def moe_router_topk_skip(logits, bias, *, top_k):
    scores = torch.softmax(logits.float(), dim=-1)
    ids = _largest(scores + bias.float(), top_k)
    return scores.gather(-1, ids), ids


def moe_router_topk_shared(logits, bias, global_scale, *, top_k, shared_experts, scaling_factor):
    """The shared experts are the last choices."""
    scores = torch.sigmoid(logits.float())
    routed = scores[:, : bias.shape[0]]
    ids = _largest(routed + bias.float(), top_k)
    both = torch.cat((routed.gather(-1, ids), scores[:, bias.shape[0] :]), dim=-1)
    both = both / both.sum(-1, keepdim=True) * scaling_factor * global_scale.float()
    return both[:, :top_k], ids, both[:, top_k:]


def _activated(activation, gate, up):
    """The nonlinearity by the words of the inventory: "silu", "silu clamped at 10", "swiglu_oai of 1.702 ..."."""
    name, _, bound = activation.partition(" clamped at ")
    name, _, alpha = name.partition(" of ")
    limit = float(bound) if bound else float("inf")
    if name == "swiglu_oai":
        bounded = gate.clamp(max=limit)
        return bounded * torch.sigmoid(float(alpha) * bounded) * (up.clamp(-limit, limit) + 1.0)
    if name == "silu":
        return functional.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)
    if name == "silu_clamped":
        return functional.silu(gate).clamp(max=limit) * up.clamp(-limit, limit)
    if name in ("gelu", "gelu_tanh"):
        return functional.gelu(gate, approximate="tanh" if name == "gelu_tanh" else "none") * up
    raise NotImplementedError(f"activation {activation}: its numbers are not in the contract")


def _gated_mlp(x, expert, activation, gate, up, down):
    inner = _activated(activation, x @ gate[expert].float().T, x @ up[expert].float().T)
    return inner @ down[expert].float().T


def routed_experts(x, weights, ids, gate, up, down, *, activation, weight_format):
    """The weights as numbers, whatever the format they are stored in."""
    y = torch.zeros(x.shape, dtype=torch.float32)
    for token, place in torch.cartesian_prod(torch.arange(ids.shape[0]), torch.arange(ids.shape[1])).tolist():
        found = _gated_mlp(x[token].float(), ids[token, place], activation, gate, up, down)
        y[token] += weights[token, place] * found
    return y.to(x.dtype)


def input_weighted_experts(x, weights, ids, gate, up, down, *, activation, weight_format):
    """The weights as numbers, whatever the format they are stored in."""
    y = torch.zeros(x.shape, dtype=torch.float32)
    for token, place in torch.cartesian_prod(torch.arange(ids.shape[0]), torch.arange(ids.shape[1])).tolist():
        read = weights[token, place] * x[token].float()
        y[token] += _gated_mlp(read, ids[token, place], activation, gate, up, down)
    return y.to(x.dtype)


def normed_routed_experts(x, weights, ids, gate, up, down, norm_weight, *, activation, weight_format, eps):
    """The weights as numbers, whatever the format they are stored in."""
    y = torch.zeros(x.shape, dtype=torch.float32)
    for token, place in torch.cartesian_prod(torch.arange(ids.shape[0]), torch.arange(ids.shape[1])).tolist():
        found = _gated_mlp(x[token].float(), ids[token, place], activation, gate, up, down)
        normed = found * torch.rsqrt(found.square().mean() + eps) * norm_weight.float()
        y[token] += weights[token, place] * normed
    return y.to(x.dtype)


def biased_routed_experts(x, weights, ids, gate, up, down, gate_bias, up_bias, down_bias, *, activation, weight_format):
    """The weights as numbers, whatever the format they are stored in."""
    y = torch.zeros(x.shape, dtype=torch.float32)
    for token, place in torch.cartesian_prod(torch.arange(ids.shape[0]), torch.arange(ids.shape[1])).tolist():
        expert, read = ids[token, place], x[token].float()
        opened = read @ gate[expert].float().T + gate_bias[expert].float()
        inner = _activated(activation, opened, read @ up[expert].float().T + up_bias[expert].float())
        y[token] += weights[token, place] * (inner @ down[expert].float().T + down_bias[expert].float())
    return y.to(x.dtype)


def routed_experts_ungated(x, weights, ids, up, down, *, activation, weight_format):
    """The weights as numbers, whatever the format they are stored in."""
    inside = {"relu2": lambda inner: torch.relu(inner).square(), "silu": functional.silu, "gelu": functional.gelu}
    y = torch.zeros(x.shape, dtype=torch.float32)
    for token, place in torch.cartesian_prod(torch.arange(ids.shape[0]), torch.arange(ids.shape[1])).tolist():
        expert = ids[token, place]
        inner = inside[activation](x[token].float() @ up[expert].float().T)
        y[token] += weights[token, place] * (inner @ down[expert].float().T)
    return y.to(x.dtype)
