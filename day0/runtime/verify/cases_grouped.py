"""Operators of grouped-query decoders beyond the plain one: inputs, and what float64 says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from day0.runtime.ops import activation
from day0.runtime.ops.rope import multi_axis_rope_table, rope_frequencies
from day0.runtime.ops.routed_experts import ExpertMatrices, StackedExperts
from day0.runtime.verify import exact
from day0.runtime.verify.draw import Draw, Facts, Prepared
from day0.runtime.verify.exact import Array


def qk_norm(draw: Draw, f: Facts) -> Prepared:
    """By every form; the weight is [head_dim], [heads, head_dim], [heads x head_dim] or none."""
    arguments, expected = [], []
    for heads in (f["heads"], f["kv_heads"]):
        x, x64 = draw.normal(f["tokens"], heads, f["head_dim"])
        shape = {"head": (f["head_dim"],), "per_head": (heads, f["head_dim"]), "all": (heads * f["head_dim"],)}
        weight, weight64 = draw.normal(*shape.get(f["form"], ())) if f["form"] != "unit" else (None, np.array(1.0))
        rows = x64.reshape(len(x64), -1) if f["form"] == "all" else x64
        arguments.append((x, weight))
        expected.append(exact.rms_norm(rows, weight64, f["eps"]).reshape(x64.shape))
    (q, q_weight), (k, k_weight) = arguments
    return (q, k, q_weight, k_weight, f["eps"], f["form"]), tuple(expected)


def _attention_variant(draw: Draw, f: Facts) -> Prepared:
    """Two sequences of `tokens` new tokens each, whose rows lie scattered over the cache."""
    contexts, length = (0, f["slots"] // 2 - f["tokens"]), f["tokens"]
    q, q64 = draw.normal(2, length, f["heads"], f["head_dim"])
    k, k64 = draw.normal(f["slots"], f["kv_heads"], f["head_dim"])
    v, v64 = draw.normal(f["slots"], f["kv_heads"], f["value_dim"])
    sinks, sinks64 = draw.normal(f["heads"]) if f["sinks"] else (None, None)
    slots = draw.choice(f["slots"], f["slots"]).reshape(2, -1)
    expected = np.zeros((2, length, f["heads"], f["value_dim"]))
    for n, token, head in np.ndindex(2, length, f["heads"]):
        seen = _seen(contexts[n] + token, f["window"], f["chunked"])
        group = head // (f["heads"] // f["kv_heads"])
        scores = k64[slots[n]][seen, group] @ q64[n, token, head] * f["scale"]
        if f["softcap"] is not None:
            scores = f["softcap"] * np.tanh(scores / f["softcap"])
        weights = np.exp(scores)
        total = weights.sum() + (0.0 if sinks64 is None else np.exp(sinks64[head]))
        expected[n, token, head] = weights @ v64[slots[n]][seen, group] / total
    facts = (f["scale"], f["window"], f["chunked"], sinks, f["softcap"])
    return (q, k, v, torch.from_numpy(slots), torch.tensor(contexts), *facts), (expected,)


def _seen(place: int, window: int | None, chunked: bool) -> range:
    if window is None:
        return range(place + 1)
    return range(place - place % window if chunked else max(0, place - window + 1), place + 1)


def _query_temperature(draw: Draw, f: Facts) -> Prepared:
    q, q64 = draw.normal(f["tokens"], f["heads"], f["head_dim"])
    positions = draw.integers(100_000, f["tokens"])
    factor = 1 + f["growth"] * np.log(1 + np.floor((positions + f["offset"]) / f["floor"]))
    arguments = (q, torch.from_numpy(positions), f["floor"], f["growth"], f["offset"])
    return arguments, (q64 * factor[:, None, None],)


def _multi_axis_rope_table(draw: Draw, f: Facts) -> Prepared:
    positions, sections = draw.integers(64, f["position_axes"], f["tokens"]), [int(n) for n in f["sections"].split()]
    frequencies, _ = exact.rope_frequencies(f["theta"], f["rope_pairs"], f["scaling"], {})
    angles = np.zeros((f["tokens"], f["rope_pairs"]))
    for pair in range(f["rope_pairs"]):
        if f["interleaved"]:
            axis = pair % len(sections)
            axis = axis if pair < len(sections) * sections[axis] else 0
        else:
            axis = int(np.searchsorted(np.cumsum(sections), pair, side="right"))
        angles[:, pair] = positions[axis] * frequencies[pair]
    arguments = (torch.from_numpy(positions), f["theta"], 2 * f["rope_pairs"], f["scaling"], sections, f["interleaved"])
    return arguments, (np.cos(angles), np.sin(angles))


def table_of_axes(
    positions: torch.Tensor, theta: float, dim: int, scaling: str, sections: Sequence[int], interleaved: bool
) -> Any:
    return multi_axis_rope_table(positions, *rope_frequencies(theta, dim, scaling, {}), sections, interleaved)


def _pair(function: Callable[..., Array], *scalars: str) -> Callable[[Draw, Facts], Prepared]:
    """An operator of two tensors [tokens, width] and the named attributes."""

    def prepare(draw: Draw, f: Facts) -> Prepared:
        (a, a64), (b, b64) = (draw.normal(f["tokens"], f["width"], scale=2.0) for _ in range(2))
        values = [f[name] for name in scalars]
        return (a, b, *values), (function(a64, b64, *values),)

    return prepare


def _one(function: Callable[..., Array], *scalars: str) -> Callable[[Draw, Facts], Prepared]:
    """An operator of one tensor [tokens, width] and the named attributes."""

    def prepare(draw: Draw, f: Facts) -> Prepared:
        x, x64 = draw.normal(f["tokens"], f["width"], scale=2.0)
        values = [f[name] for name in scalars]
        return (x, *values), (function(x64, *values),)

    return prepare


def _weighed(function: Callable[..., Array], weight: str, *scalars: str) -> Callable[[Draw, Facts], Prepared]:
    """One tensor [tokens, width] and a vector as long as the named axis."""

    def prepare(draw: Draw, f: Facts) -> Prepared:
        (x, x64), (w, w64) = draw.normal(f["tokens"], f["width"], scale=2.0), draw.normal(f[weight])
        values = [f[name] for name in scalars]
        return (x, w, *values), (function(x64, w64, *values),)

    return prepare


def _head_softplus_gate(draw: Draw, f: Facts) -> Prepared:
    (x, x64), (gate, gate64) = (
        draw.normal(f["tokens"], f["heads"], f["head_dim"]),
        draw.normal(f["tokens"], f["heads"]),
    )
    return (x, gate), (x64 * np.log1p(np.exp(gate64))[..., None],)


def _layer_norm(x: Array, weight: Array, eps: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(x.var(-1, keepdims=True) + eps) * weight


def _swiglu_oai(gate: Array, up: Array, alpha: float, limit: float | None) -> Array:
    bound = np.inf if limit is None else limit
    gate, up = np.minimum(gate, bound), np.clip(up, -bound, bound)
    return gate * exact.sigmoid(alpha * gate) * (up + 1)


def _router(scores: Callable[[Array], Array]) -> Callable[[Draw, Facts], Prepared]:
    def prepare(draw: Draw, f: Facts) -> Prepared:
        logits, logits64 = draw.wide(f["tokens"], f["experts"])
        bias, bias64 = draw.wide(f["experts"], scale=0.1) if f["correction_bias"] else (None, 0.0)
        found, groups = scores(logits64), (f["num_groups"], f["topk_groups"])
        expected = exact.route(found, found + bias64, f["top_k"], f["renormalize"], f["scaling_factor"], groups)
        return (logits, f["top_k"], f["renormalize"], f["scaling_factor"], bias, *groups), expected

    return prepare


def _logit_bias(draw: Draw, f: Facts) -> Prepared:
    (logits, logits64), (bias, bias64) = draw.wide(f["tokens"], f["experts"]), draw.wide(f["experts"], scale=0.1)
    weighing = (f["top_k"], f["renormalize"], f["scaling_factor"])
    return (logits, *weighing, bias), exact.route(exact.sigmoid(logits64), logits64 + bias64, *weighing, (1, 1))


def _sparsemixer(draw: Draw, f: Facts) -> Prepared:
    """Expert by expert: softmax over the logits left that lie within two hundredths of the largest."""
    logits, logits64 = draw.wide(f["tokens"], f["experts"], scale=0.02)
    logits, logits64 = draw.rounded(logits64 + 1.0, torch.float32)
    weights, ids = np.zeros((f["tokens"], f["top_k"])), np.zeros((f["tokens"], f["top_k"]), dtype=np.int64)
    for token, row in enumerate(logits64):
        left = list(range(len(row)))
        for place in range(f["top_k"]):
            best = max(left, key=lambda expert: row[expert])
            near = [e for e in left if (row[best] - row[e]) / max(abs(row[e]), row[best]) <= 0.02]
            weights[token, place] = 1.0 / np.exp(row[near] - row[best]).sum()
            ids[token, place] = best
            left.remove(best)
    return (logits, f["top_k"], f["renormalize"], f["scaling_factor"], None, 1, 1), (weights, ids)


def _hash(draw: Draw, f: Facts) -> Prepared:
    logits, logits64 = draw.wide(f["tokens"], f["experts"])
    table = np.stack([draw.choice(f["experts"], f["top_k"]) for _ in range(f["table_rows"])])
    tokens = draw.integers(f["table_rows"], f["tokens"])
    scores = {
        "sqrtsoftplus": lambda x: np.sqrt(np.log1p(np.exp(x))),
        "sigmoid": exact.sigmoid,
        "softmax": exact.softmax,
    }
    ids = table[tokens]
    weights = np.take_along_axis(scores[f["scoring"]](logits64), ids, axis=-1)
    weights = weights / weights.sum(-1, keepdims=True) if f["renormalize"] else weights
    arguments = (logits, torch.from_numpy(tokens), torch.from_numpy(table), f["scoring"])
    return (*arguments, f["renormalize"], f["scaling_factor"]), (weights * f["scaling_factor"], ids)


def _expert_scale(draw: Draw, f: Facts) -> Prepared:
    (weights, weights64), (scale, scale64) = draw.wide(f["tokens"], f["top_k"]), draw.normal(f["experts"])
    ids = np.stack([draw.choice(f["experts"], f["top_k"]) for _ in range(f["tokens"])])
    return (weights, torch.from_numpy(ids), scale), (weights64 * scale64[ids],)


GATED: Mapping[str, tuple[Callable[..., Any], Callable[..., Array]]] = {
    "silu": (activation.silu_and_mul, lambda gate, up: exact.silu(gate) * up),
    "swiglu_oai of 1.702 clamped at 7": (
        lambda gate, up: activation.swiglu_oai_and_mul(gate, up, 1.702, 7.0),
        lambda gate, up: _swiglu_oai(gate, up, 1.702, 7.0),
    ),
}
PLAIN_ACTIVATIONS: Mapping[str, tuple[Callable[..., Any], Callable[..., Array]]] = {
    "relu2": (activation.relu2, lambda up: np.maximum(up, 0.0) ** 2)
}


def _experts(*, gated: bool = True, biased: bool = False, weigh_input: bool = False) -> Callable[..., Prepared]:
    def prepare(draw: Draw, f: Facts) -> Prepared:
        experts, inner, outer = f["experts"], f["expert_width"], f["expert_in"]
        x, x64 = draw.normal(f["tokens"], outer)
        ids = np.stack([draw.choice(experts, f["top_k"]) for _ in range(f["tokens"])])
        weights, weights64 = draw.rounded(draw.rng.uniform(0.1, 1.0, ids.shape) / f["top_k"], torch.float32)
        shapes = {"gate": (inner, outer), "up": (inner, outer), "down": (outer, inner)}
        drawn = {name: draw.normal(experts, *shape, scale=shape[1] ** -0.5) for name, shape in shapes.items()}
        added = {name: draw.normal(experts, shape[0]) for name, shape in shapes.items()}
        kernel, definition = (GATED if gated else PLAIN_ACTIVATIONS)[f["activation"]]
        y = np.zeros(x64.shape)
        for token, place in np.ndindex(*ids.shape):
            expert, weight = ids[token, place], weights64[token, place]

            def project(name: str, read: Array, expert: Any = expert) -> Array:
                return drawn[name][1][expert] @ read + (added[name][1][expert] if biased else 0.0)

            read = x64[token] * weight if weigh_input else x64[token]
            inputs = (project("gate", read), project("up", read)) if gated else (project("up", read),)
            y[token] += project("down", definition(*inputs)) * (1.0 if weigh_input else weight)
        parts: list[Any] = [drawn[name][0] if gated or name != "gate" else None for name in shapes]
        biases: list[Any] = [added[name][0] if biased else None for name in shapes]
        stacked = StackedExperts(*parts, *biases)

        def matrices(chosen: list[int]) -> list[ExpertMatrices]:
            held: list[Any] = list(stacked)
            rows: list[list[Any]] = [[None if part is None else part[e] for part in held] for e in chosen]
            return [ExpertMatrices(e, *row) for e, row in zip(chosen, rows, strict=True)]

        return (x, weights, torch.from_numpy(ids), experts, matrices, kernel, stacked), (y,)

    return prepare


def _lookup(draw: Draw, f: Facts) -> Prepared:
    weight, weight64 = draw.normal(f["vocab"], f["width"])
    ids = draw.integers(f["vocab"], f["tokens"])
    return (torch.from_numpy(ids), weight), (weight64[ids],)


def _biased_head(draw: Draw, f: Facts) -> Prepared:
    (x, x64), (bias, bias64) = draw.normal(f["wanted"], f["width"]), draw.normal(f["vocab"])
    weight, weight64 = draw.normal(f["vocab"], f["width"], scale=f["width"] ** -0.5)
    return (x, weight, bias), (x64 @ weight64.T + bias64,)


def _weighed_add(draw: Draw, f: Facts) -> Prepared:
    (x, x64), (y, y64) = (draw.normal(f["tokens"], f["width"]) for _ in range(2))
    return (x, y, f["skip"], f["branch"]), (f["skip"] * x64 + f["branch"] * y64,)


def _token_gate(draw: Draw, f: Facts) -> Prepared:
    (x, x64), (gate, gate64) = draw.normal(f["tokens"], f["width"]), draw.normal(f["tokens"])
    return (x, gate), (x64 * exact.sigmoid(gate64)[:, None],)


GROUPED: Mapping[str, Callable[[Draw, Facts], Prepared]] = {
    "qk_norm": qk_norm,
    "paged_gqa_attention_variant": _attention_variant,
    "query_temperature": _query_temperature,
    "multi_axis_rope_table": _multi_axis_rope_table,
    "clamped_silu_and_mul": _pair(
        lambda gate, up, limit: exact.silu(np.minimum(gate, limit)) * np.clip(up, -limit, limit), "limit"
    ),
    "silu_clamped_and_mul": _pair(
        lambda gate, up, limit: np.minimum(exact.silu(gate), limit) * np.clip(up, -limit, limit), "limit"
    ),
    "swiglu_oai_and_mul": _pair(_swiglu_oai, "alpha", "limit"),
    "softplus_gate": _pair(lambda x, gate: x * np.log1p(np.exp(gate))),
    "head_softplus_gate": _head_softplus_gate,
    "token_sigmoid_gate": _token_gate,
    "softcap": _one(lambda x, cap: cap * np.tanh(x / cap), "softcap"),
    "relu2": _one(lambda x: np.maximum(x, 0.0) ** 2),
    "unit_rms_norm": _one(lambda x, eps: exact.rms_norm(x, np.array(1.0), eps), "eps"),
    "rms_norm_plus_one": _weighed(lambda x, weight, eps: exact.rms_norm(x, 1.0 + weight, eps), "width", "eps"),
    "layer_norm_without_bias": _weighed(_layer_norm, "width", "eps"),
    "learnt_scale": _weighed(np.multiply, "single"),
    "weighed_residual_add": _weighed_add,
    "moe_router_topk_sqrtsoftplus_bias": _router(lambda x: np.sqrt(np.log1p(np.exp(x)))),
    "moe_router_topk_logit_bias": _logit_bias,
    "moe_router_sparsemixer": _sparsemixer,
    "moe_router_hash": _hash,
    "moe_expert_scale": _expert_scale,
    "routed_experts_ungated": _experts(gated=False),
    "biased_routed_experts": _experts(biased=True),
    "input_weighted_experts": _experts(weigh_input=True),
    "biased_lm_head": _biased_head,
    "per_layer_embedding_lookup": _lookup,
}
