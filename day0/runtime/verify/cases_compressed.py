"""DeepSeek-V4's attention and hyper-connections: inputs, and what float64 says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from day0.runtime.verify import exact
from day0.runtime.verify.draw import Draw, Facts, Prepared
from day0.runtime.verify.exact import Array

NORM_EPS = 1e-6


def _attention(chosen: bool, compressed: bool) -> Callable[[Draw, Facts], Prepared]:
    """Two sequences of `tokens` new tokens each; an entry for every `ratio` tokens, read all or as chosen."""

    def prepare(draw: Draw, f: Facts) -> Prepared:
        length, longest, ratio = f["tokens"], f["slots"] // 2, f.get("ratio", 1)
        q, q64 = draw.normal(2, length, f["heads"], f["head_dim"])
        (near, near64), (far, far64) = (draw.normal(f["slots"], f["head_dim"]) for _ in range(2))
        sinks, sinks64 = draw.wide(f["heads"])
        slots = draw.choice(f["slots"], 2 * longest).reshape(2, -1)
        entry_slots = draw.choice(f["slots"], 2 * (longest // ratio)).reshape(2, -1)
        before = longest - length
        ids = np.full((2, length, f.get("chosen", 1)), -1)
        expected = np.zeros(q64.shape)
        for n, row in np.ndindex(2, length):
            place = before + row
            ready = (place + 1) // ratio if compressed else 0
            own = draw.choice(ready, min(ready, ids.shape[2])) if chosen else np.arange(ready)
            if chosen:
                ids[n, row, : len(own)] = own
            first = max(0, place - f["window"] + 1)
            keys = np.concatenate((near64[slots[n, first : place + 1]], far64[entry_slots[n, own]]))
            expected[n, row] = _attend(q64[n, row], keys, sinks64, f["scale"])
        places = (torch.from_numpy(slots), torch.from_numpy(entry_slots), torch.full((2,), before))
        if chosen:
            arguments: tuple[Any, ...] = (q, near, far, torch.from_numpy(ids), sinks, *places, f["scale"], f["window"])
        elif compressed:
            arguments = (q, near, far, sinks, *places, f["scale"], f["window"], ratio)
        else:
            arguments = (q, near, sinks, places[0], places[2], f["scale"], f["window"])
        return arguments, (expected,)

    return prepare


def _attend(q: Array, keys: Array, sinks: Array, scale: float) -> Array:
    """q [heads, dim] over keys that are values too, [read, dim]."""
    scores = np.concatenate((q @ keys.T * scale, sinks[:, None]), axis=1)
    return exact.softmax(scores)[:, :-1] @ keys


def _streams(draw: Draw, f: Facts, weights: int, scales: int) -> tuple[Sequence[torch.Tensor], Sequence[Array]]:
    width = f["streams"] * f["width"]
    pairs = (
        draw.normal(f["tokens"], f["streams"], f["width"]),
        draw.wide(weights, width, scale=width**-0.5),
        draw.wide(weights),
        draw.wide(scales),
    )
    tensors, arrays = zip(*pairs, strict=True)
    return tensors, arrays


def _raw(stream: Array, fn: Array) -> Array:
    flat = stream.reshape(-1)
    return fn @ (flat / np.sqrt(np.mean(flat**2) + NORM_EPS))


def _read(draw: Draw, f: Facts) -> Prepared:
    count, steps = f["streams"], f["iterations"]
    mixing = 0 if steps is None else count**2
    tensors, (x, fn, base, scale) = _streams(draw, f, 2 * count + mixing, 2 if steps is None else 3)
    factors = np.repeat(scale, [count, count, mixing][: len(scale)])
    mixed, weights = [], []
    for stream in x:
        own = _raw(stream, fn) * factors + base
        parts = [exact.sigmoid(own[:count]) + f["eps"], f["write_scale"] * exact.sigmoid(own[count : 2 * count])]
        mixed.append(parts[0] @ stream)
        if steps is not None:
            parts.append(_balanced(own[2 * count :].reshape(count, count), f["eps"], steps).reshape(-1))
        weights.append(np.concatenate(parts))
    arguments = (*tensors, NORM_EPS, f["eps"], steps, f["write_scale"])
    return arguments, (np.stack(mixed), np.stack(weights))


def _balanced(logits: Array, eps: float, steps: int) -> Array:
    matrix = exact.softmax(logits) + eps
    for step in range(steps):
        if step:
            matrix = matrix / (matrix.sum(axis=1, keepdims=True) + eps)
        matrix = matrix / (matrix.sum(axis=0, keepdims=True) + eps)
    return matrix


def _write(draw: Draw, f: Facts) -> Prepared:
    count, steps = f["streams"], f["iterations"]
    x, x64 = draw.normal(f["tokens"], count, f["width"])
    branch, branch64 = draw.normal(f["tokens"], f["width"])
    weights, weights64 = draw.wide(f["tokens"], count * (2 if steps is None else 2 + count))
    expected = np.zeros(x64.shape)
    for token, own in enumerate(weights64):
        matrix = np.eye(count) if steps is None else own[2 * count :].reshape(count, count)
        expected[token] = matrix.T @ x64[token] + np.outer(own[count : 2 * count], branch64[token])
    return (x, branch, weights, steps), (expected,)


def _join(draw: Draw, f: Facts) -> Prepared:
    tensors, (x, fn, base, scale) = _streams(draw, f, f["streams"], 1)
    if not f["learned"]:
        return (tensors[0], None, None, None, NORM_EPS, f["eps"]), (x.mean(axis=1),)
    joined = [(exact.sigmoid(_raw(one, fn) * scale + base) + f["eps"]) @ one for one in x]
    return (*tensors, NORM_EPS, f["eps"]), (np.stack(joined),)


COMPRESSED: Mapping[str, Callable[[Draw, Facts], Prepared]] = {
    "shared_kv_attention": _attention(chosen=False, compressed=False),
    "hca_attention": _attention(chosen=False, compressed=True),
    "csa_attention": _attention(chosen=True, compressed=True),
    "hyper_connection_read": _read,
    "hyper_connection_write": _write,
    "hyper_connection_join": _join,
}
