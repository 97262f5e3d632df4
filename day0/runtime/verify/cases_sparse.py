"""Sparse and latent attention, and what goes with it: inputs, and what float64 says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from day0.runtime.verify import exact
from day0.runtime.verify.draw import Draw, Facts, Prepared
from day0.runtime.verify.exact import Array, Indices

Reads = Callable[[int, int], Sequence[int] | Indices | range]
"""The places that the token at a place of a sequence reads."""


def _attend(
    q: Array, rows: Sequence[Array] | Array, reads: Reads, first: int, values: int, scale: float, sinks: Array
) -> Array:
    """Query by query: q [sequences, length, heads, dim], rows of each sequence [places, dim], `values` of them read."""
    y = np.zeros((*q.shape[:3], values))
    for n, row, head in np.ndindex(*q.shape[:3]):
        chosen = rows[n][list(reads(n, first + row))]
        scores = chosen @ q[n, row, head] * scale
        top = max(scores.max(), sinks[head])
        weights = np.exp(scores - top)
        y[n, row, head] = weights @ chosen[:, :values] / (weights.sum() + np.exp(sinks[head] - top))
    return y


def _latents(draw: Draw, f: Facts) -> tuple[list[torch.Tensor], Array, Array, Indices]:
    """Two sequences of `tokens` new tokens each; their queries, and latents scattered over the cache."""
    q_latent, latent64 = draw.normal(2, f["tokens"], f["heads"], f["latent_dim"])
    q_rope, rope64 = draw.normal(2, f["tokens"], f["heads"], f["rope_dim"])
    cache, cache64 = draw.normal(f["slots"], f["cached_dim"])
    slots = draw.choice(f["slots"], f["slots"]).reshape(2, -1)
    return [q_latent, q_rope, cache], np.concatenate((latent64, rope64), axis=-1), cache64, slots


def _sinks(draw: Draw, f: Facts) -> tuple[torch.Tensor | None, Array]:
    if f["sinks"]:
        return draw.wide(f["heads"])
    return None, np.full(f["heads"], -np.inf)


def _window_mla(draw: Draw, f: Facts) -> Prepared:
    tensors, q, cache, slots = _latents(draw, f)
    sinks, sinks64 = _sinks(draw, f)
    before = f["slots"] // 2 - f["tokens"]

    def reads(n: int, place: int) -> range:
        return range(0 if f["window"] is None else max(0, place - f["window"] + 1), place + 1)

    expected = _attend(q, cache[slots], reads, before, f["latent_dim"], f["scale"], sinks64)
    context = torch.full((2,), before)
    return (*tensors, torch.from_numpy(slots), context, f["scale"], f["window"], sinks), (expected,)


def _sparse_mla(draw: Draw, f: Facts) -> Prepared:
    tensors, q, cache, slots = _latents(draw, f)
    sinks, sinks64 = _sinks(draw, f)
    longest = slots.shape[1]
    ids = np.full((2, f["tokens"], f["chosen"]), -1)
    for n, row in np.ndindex(2, f["tokens"]):
        own = draw.choice(longest, min(f["chosen"], longest))
        ids[n, row, : len(own)] = own
    expected = _attend(
        q, cache[slots], lambda n, row: ids[n, row][ids[n, row] >= 0], 0, f["latent_dim"], f["scale"], sinks64
    )
    return (*tensors, torch.from_numpy(slots), torch.from_numpy(ids), f["scale"], sinks), (expected,)


def _indexer(draw: Draw, f: Facts) -> Prepared:
    """Scores that are whole numbers, so that equal ones are equal in every dtype and there are many of them."""
    length, heads, dim, ratio = f["tokens"], f["heads"], f["head_dim"], f["ratio"]
    q64 = draw.integers(3, 2, length, heads, dim) - 1
    weights64 = draw.integers(5, 2, length, heads) - 2
    keys64 = draw.integers(3, f["slots"], dim) - 1
    slots = draw.choice(f["slots"], f["slots"]).reshape(2, -1)
    entries = slots.shape[1]
    context = entries * ratio - length
    width = min(f["chosen"], entries)
    ids = np.full((2, length, width + f["keep_tail"]), -1)
    for n, row in np.ndindex(2, length):
        total = context + row + 1
        products = np.maximum(q64[n, row] @ keys64[slots[n, : total // ratio]].T, 0)
        scores = weights64[n, row] @ products
        best = sorted(range(total // ratio), key=lambda s: (-scores[s], s))[:width]
        ids[n, row, : len(best)] = sorted(best)
        if f["keep_tail"] and total % ratio:
            ids[n, row, -1] = total // ratio
    q, cache = (torch.from_numpy(part).to(draw.dtype) for part in (q64, keys64))
    weights, starts = torch.from_numpy(weights64).float(), torch.full((2,), context)
    # A power of two as scale keeps the scores exact.
    arguments = (q, weights, cache, torch.from_numpy(slots), starts, f["chosen"], f["scale"], ratio, f["keep_tail"])
    return arguments, (ids,)


def _block_indexer(draw: Draw, f: Facts) -> Prepared:
    """Products that are whole numbers, so that equal ones are equal in every dtype and there are many of them."""
    length, heads, dim, block = f["tokens"], f["index_heads"], f["head_dim"], f["block"]
    q64, keys64 = draw.integers(3, 2, length, heads, dim) - 1, draw.integers(3, f["slots"], dim) - 1
    slots = draw.choice(f["slots"], f["slots"]).reshape(2, -1)
    context = slots.shape[1] - length
    width = min(f["chosen"], -(-slots.shape[1] // block))
    ids = np.full((2, length, heads, width), -1)
    for n, row, head in np.ndindex(2, length, heads):
        products = keys64[slots[n, : context + row + 1]] @ q64[n, row, head]
        scores = [products[start : start + block].max() for start in range(0, len(products), block)]
        last = len(scores) - f["local_blocks"]
        best = sorted(range(len(scores)), key=lambda b: (b < last, -scores[b] if b < last else 0, b))[:width]
        ids[n, row, head, : len(best)] = sorted(best)
    q, cache = (torch.from_numpy(part).to(draw.dtype) for part in (q64, keys64))
    sizes = (f["chosen"], block, f["local_blocks"])
    return (q, cache, torch.from_numpy(slots), torch.full((2,), context), *sizes), (ids,)


def _block_sparse(draw: Draw, f: Facts) -> Prepared:
    """Every index head reads the token's own block and others at random."""
    length, block, groups = f["tokens"], f["block"], f["heads"] // f["index_heads"]
    q, q64 = draw.normal(2, length, f["heads"], f["head_dim"])
    (k, k64), (v, v64) = (draw.normal(f["slots"], f["kv_heads"], f["head_dim"]) for _ in range(2))
    slots = draw.choice(f["slots"], f["slots"]).reshape(2, -1)
    context = slots.shape[1] - length
    ids = np.full((2, length, f["index_heads"], f["chosen"]), -1)
    expected = np.zeros(q64.shape)
    for n, row, head in np.ndindex(2, length, f["heads"]):
        place, chooser = context + row, head // groups
        if head % groups == 0:
            own = place // block
            picked = sorted({own, *draw.choice(own + 1, min(f["chosen"] - 1, own + 1))})
            ids[n, row, chooser, : len(picked)] = picked
        tokens = [t for b in ids[n, row, chooser] if b >= 0 for t in range(b * block, min(place + 1, (b + 1) * block))]
        rows, kv_head = slots[n, tokens], head // (f["heads"] // f["kv_heads"])
        weights = exact.softmax(k64[rows, kv_head] @ q64[n, row, head] * f["scale"])
        expected[n, row, head] = weights @ v64[rows, kv_head]
    tables = torch.from_numpy(slots), torch.full((2,), context), torch.from_numpy(ids)
    return (q, k, v, *tables, f["scale"], block), (expected,)


def _gated_pool(draw: Draw, f: Facts) -> Prepared:
    stride, overlap = f["stride"], f["overlap"]
    width = f["head_dim"] * (2 if overlap else 1)
    made_of = 2 * stride if overlap else stride
    (x, x64), (gate, gate64) = (draw.normal(f["entries"], made_of, width) for _ in range(2))
    bias, bias64 = draw.wide(stride, width)
    half = f["head_dim"]
    expected = np.zeros((f["entries"], half))
    for e in range(f["entries"]):
        own = slice(made_of - stride, None)
        values, logits = x64[e, own, -half:], gate64[e, own, -half:] + bias64[:, -half:]
        if overlap and e:  # the first entry has nothing before it
            values = np.concatenate((x64[e, :stride, :half], values))
            logits = np.concatenate((gate64[e, :stride, :half] + bias64[:, :half], logits))
        expected[e] = (exact.softmax(logits.T).T * values).sum(axis=0)
    return (x, gate, bias, overlap, torch.arange(f["entries"]) == 0), (expected,)


def _rope_tail(draw: Draw, f: Facts) -> Prepared:
    x, x64 = draw.normal(f["tokens"], f["heads"], f["head_dim"])
    angles = draw.rng.uniform(-3.0, 3.0, (f["tokens"], f["rope_pairs"]))
    (cos, cos64), (sin, sin64) = (draw.rounded(turn(angles), torch.float32) for turn in (np.cos, np.sin))
    expected = x64.copy()
    tail = x64[..., f["head_dim"] - 2 * f["rope_pairs"] :]
    expected[..., -tail.shape[-1] :] = exact.rope(tail, cos64, -sin64 if f["inverse"] else sin64, f["layout"])
    return (x, cos, sin, f["layout"], f["inverse"]), (expected,)


def _layer_norm(draw: Draw, f: Facts) -> Prepared:
    x, x64 = draw.normal(f["tokens"], f["width"])
    (weight, weight64), (bias, bias64) = draw.wide(f["width"]), draw.wide(f["width"])
    centred = x64 - x64.mean(axis=-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + f["eps"]) * weight64 + bias64
    return (x, weight, bias, f["eps"]), (expected,)


def _head_gate(draw: Draw, f: Facts) -> Prepared:
    x, x64 = draw.normal(f["tokens"], f["heads"], f["head_dim"])
    gate, gate64 = draw.normal(f["tokens"], f["heads"])
    return (x, gate), (x64 * exact.sigmoid(gate64)[..., None],)


def _constant_scale(draw: Draw, f: Facts) -> Prepared:
    x, x64 = draw.normal(f["tokens"], f["width"])
    return (x, f["factor"]), (x64 * f["factor"],)


def _group_best(draw: Draw, f: Facts) -> Prepared:
    logits, logits64 = draw.wide(f["tokens"], f["experts"])
    bias, bias64 = draw.wide(f["experts"], scale=0.1) if f["correction_bias"] else (None, 0.0)
    found = exact.softmax(logits64)
    groups = (f["num_groups"], f["topk_groups"])
    expected = exact.route(
        found, found + bias64, f["top_k"], f["renormalize"], f["scaling_factor"], groups, best_of_group=1
    )
    return (logits, f["top_k"], f["renormalize"], f["scaling_factor"], bias, *groups), expected


SPARSE: Mapping[str, Callable[[Draw, Facts], Prepared]] = {
    "window_mla_attention": _window_mla,
    "sparse_mla_attention": _sparse_mla,
    "lightning_indexer_topk": _indexer,
    "block_indexer_topk": _block_indexer,
    "block_sparse_attention": _block_sparse,
    "gated_pool": _gated_pool,
    "rope_tail": _rope_tail,
    "layer_norm": _layer_norm,
    "head_sigmoid_gate": _head_gate,
    "constant_scale": _constant_scale,
    "moe_router_group_best_softmax": _group_best,
}
