"""What the operators of linear attention and state spaces are measured on: inputs, and recurrences in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from day0.runtime.verify import exact
from day0.runtime.verify.draw import Draw, Facts, Prepared

SEQUENCES = 2


def _stacked(function: Callable[..., tuple[Any, ...]], *arrays: Any) -> tuple[Any, ...]:
    """A function of one sequence over all, its outputs stacked."""
    found = [function(*(array[n] for array in arrays)) for n in range(SEQUENCES)]
    return tuple(np.stack(part) for part in zip(*found, strict=True))


def _convolution(draw: Draw, f: Facts, bias: bool) -> Prepared:
    x, x64 = draw.normal(SEQUENCES, f["tokens"], f["width"])
    weight, weight64 = draw.wide(f["width"], f["taps"])
    state, state64 = draw.normal(SEQUENCES, f["width"], f["past_taps"])
    added, added64 = draw.wide(f["width"]) if bias else (None, 0.0)

    def convolve(x: Any, state: Any) -> tuple[Any, Any]:
        inputs = np.concatenate((state.T, x))
        windows = [inputs[t : t + f["taps"]].T for t in range(len(x))]
        y = np.stack([np.sum(window * weight64, axis=1) for window in windows]) + added64
        return exact.silu(y) if f["activation"] == "silu" else y, inputs[len(x) :].T

    middle = (weight, added) if bias else (weight,)
    return (x, *middle, state, f["activation"]), _stacked(convolve, x64, state64)


def _gated_delta_gate(draw: Draw, f: Facts) -> Prepared:
    (a, a64), (b, b64) = (draw.normal(f["tokens"], f["value_heads"]) for _ in "ab")
    (a_log, a_log64), (dt_bias, dt_bias64) = (draw.wide(f["value_heads"]) for _ in range(2))
    g = -np.exp(a_log64) * np.logaddexp(0.0, a64 + dt_bias64)
    return (a, a_log, dt_bias, b, f["strength"]), (g, f["strength"] * exact.sigmoid(b64))


def _gated_delta(draw: Draw, f: Facts) -> Prepared:
    """Unit queries and keys, decays from none at all to what leaves nothing behind."""
    at, shared = (SEQUENCES, f["tokens"]), f["value_heads"] // f["key_heads"]
    unit = [exact.l2_norm(draw.rng.standard_normal((*at, f["key_heads"], f["head_dim"])), 1e-6) for _ in "qk"]
    (q, q64), (k, k64) = (draw.rounded(x, torch.float32) for x in unit)
    v, v64 = draw.normal(*at, f["value_heads"], f["value_dim"])
    g, g64 = draw.rounded(-(10.0 ** draw.rng.uniform(-3.0, 1.5, (*at, f["value_heads"]))), torch.float32)
    beta, beta64 = draw.rounded(draw.rng.uniform(0.0, 1.0, g64.shape), torch.float32)
    state, state64 = draw.wide(SEQUENCES, f["value_heads"], f["head_dim"], f["value_dim"])
    wide_q, wide_k = (np.repeat(x, shared, axis=2) for x in (q64, k64))

    def rule(q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any) -> tuple[Any, Any]:
        return exact.delta_rule(q, k, v, np.broadcast_to(g[..., None], k.shape), beta, state, f["scale"])

    return (q, k, v, g, beta, state, f["scale"]), _stacked(rule, wide_q, wide_k, v64, g64, beta64, state64)


def _lightning(draw: Draw, f: Facts) -> Prepared:
    heads, dim = f["heads"], f["head_dim"]
    (q, q64), (k, k64), (v, v64) = (draw.normal(SEQUENCES, f["tokens"], heads, dim, scale=dim**-0.25) for _ in "qkv")
    slope, slope64 = draw.rounded(draw.rng.uniform(0.0, 1.0, heads), torch.float32)
    state, state64 = draw.wide(SEQUENCES, heads, dim, dim)

    def attend(q: Any, k: Any, v: Any, state: Any) -> tuple[Any, Any]:
        outputs = []
        for t in range(len(q)):
            state = np.exp(-slope64)[:, None, None] * state + k[t, :, :, None] * v[t, :, None]
            outputs.append(np.einsum("hkv,hk->hv", state, q[t]))
        return np.stack(outputs), state

    return (q, k, v, slope, state), _stacked(attend, q64, k64, v64, state64)


def _ssd(draw: Draw, f: Facts) -> Prepared:
    at, heads, groups, size = (SEQUENCES, f["tokens"]), f["heads"], f["state_groups"], f["state_size"]
    (x, x64), (dt, dt64) = draw.normal(*at, heads, f["head_dim"]), draw.normal(*at, heads)
    (b, b64), (c, c64) = (draw.normal(*at, groups, size, scale=size**-0.25) for _ in "bc")
    (a_log, a_log64), (d, d64), (dt_bias, dt_bias64) = (draw.wide(heads) for _ in range(3))
    state, state64 = draw.wide(SEQUENCES, heads, f["head_dim"], size)
    steps = np.clip(np.logaddexp(0.0, dt64 + dt_bias64), f["step_min"], f["step_max"])
    wide_b, wide_c = (np.repeat(y, heads // groups, axis=2) for y in (b64, c64))

    def scan(x: Any, steps: Any, b: Any, c: Any, state: Any) -> tuple[Any, Any]:
        outputs = []
        for t in range(len(x)):
            written = np.einsum("h,hp,hs->hps", steps[t], x[t], b[t])
            state = np.exp(-np.exp(a_log64) * steps[t])[:, None, None] * state + written
            outputs.append(np.einsum("hps,hs->hp", state, c[t]) + d64[:, None] * x[t])
        return np.stack(outputs), state

    arguments = (x, dt, b, c, a_log, d, dt_bias, state, f["step_min"], f["step_max"])
    return arguments, _stacked(scan, x64, steps, wide_b, wide_c, state64)


def _selective(draw: Draw, f: Facts) -> Prepared:
    at, width, size = (SEQUENCES, f["tokens"]), f["width"], f["state_size"]
    (x, x64), (dt, dt64), (z, z64) = (draw.normal(*at, width) for _ in range(3))
    (b, b64), (c, c64) = (draw.normal(*at, size, scale=size**-0.25) for _ in "bc")
    (a_log, a_log64), (d, d64) = draw.wide(width, size), draw.wide(width)
    (dt_bias, dt_bias64), (state, state64) = draw.wide(width), draw.wide(SEQUENCES, width, size)
    steps = np.logaddexp(0.0, dt64 + dt_bias64)

    def scan(x: Any, steps: Any, z: Any, b: Any, c: Any, state: Any) -> tuple[Any, Any]:
        outputs = []
        for t in range(len(x)):
            decay = np.exp(-np.exp(a_log64) * steps[t][:, None])
            state = decay * state + (steps[t] * x[t])[:, None] * b[t]
            outputs.append((state @ c[t] + d64 * x[t]) * exact.silu(z[t]))
        return np.stack(outputs), state

    return (x, dt, z, b, c, a_log, d, dt_bias, state), _stacked(scan, x64, steps, z64, b64, c64, state64)


def _gated_group_rms_norm(draw: Draw, f: Facts) -> Prepared:
    (x, x64), (gate, gate64) = (draw.normal(f["tokens"], f["width"]) for _ in range(2))
    weight, weight64 = draw.normal(f["width"])
    factor, groups = exact.silu(gate64), f["norm_groups"]
    parts = (x64 * factor if f["gate_first"] else x64).reshape(len(x64), groups, -1)
    normed = exact.rms_norm(parts, np.ones(parts.shape[-1]), f["eps"]).reshape(x64.shape) * weight64
    arguments = (x, gate, weight, f["eps"], groups, f["gate_first"])
    return arguments, (normed if f["gate_first"] else normed * factor,)


RECURRENT: Mapping[str, Callable[[Draw, Facts], Prepared]] = {
    "causal_conv1d": lambda draw, f: _convolution(draw, f, bias=False),
    "causal_conv1d_bias": lambda draw, f: _convolution(draw, f, bias=True),
    "gated_delta_gate": _gated_delta_gate,
    "gated_delta_chunk": _gated_delta,
    "gated_delta_recurrent": _gated_delta,
    "lightning_chunk": _lightning,
    "lightning_recurrent": _lightning,
    "selective_scan": _selective,
    "selective_state_update": _selective,
    "ssd_chunk_scan": _ssd,
    "ssd_state_update": _ssd,
    "gated_group_rms_norm": _gated_group_rms_norm,
}
"""How inputs and expected outputs of each operator are made."""
