"""Operators in float64 numpy, written from their definitions and apart from the torch references they judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf)(x)


def gelu(x: Array, approximate: str) -> Array:
    """x times the normal distribution function; "tanh" is the approximation of the paper's section 2."""
    if approximate == "tanh":
        return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1.0 + _erf(x / np.sqrt(2.0)))


def situ(gate: Array, up: Array, beta: float, linear_beta: float | None) -> Array:
    bounded_up = up if linear_beta is None else linear_beta * np.tanh(up / linear_beta)
    return beta * np.tanh(gate / beta) * sigmoid(gate) * bounded_up


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps) * weight


def l2_norm(x: Array, eps: float) -> Array:
    return x / np.sqrt(np.sum(x**2, axis=-1, keepdims=True) + eps)


def softmax(x: Array) -> Array:
    shifted = np.exp(x - x.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def attention_residual_mix(candidates: Array, norm_weight: Array, query: Array, eps: float) -> tuple[Array, Array]:
    """candidates [candidates, tokens, width]; the mix [tokens, width] and the weights [tokens, candidates]."""
    scores = rms_norm(candidates, norm_weight, eps) @ query  # [candidates, tokens]
    weights = softmax(scores.T)
    return np.einsum("tc,ctw->tw", weights, candidates), weights


def rope(x: Array, cos: Array, sin: Array, layout: str) -> Array:
    """Pairs of channels as complex numbers, multiplied by cos + i sin; channels beyond the pairs pass."""
    pairs = cos.shape[-1]
    first = np.arange(pairs) if layout == "neox" else 2 * np.arange(pairs)
    second = first + (pairs if layout == "neox" else 1)
    turned = (x[..., first] + 1j * x[..., second]) * (cos + 1j * sin)[:, None, :]
    y = x.copy()
    y[..., first], y[..., second] = turned.real, turned.imag
    return y


def causal_attention(q: Array, k: Array, v: Array, context: int, scale: float, window: int | None) -> Array:
    """One sequence: q [length, heads, dim], k and v [context + length, kv_heads, dim], query by query."""
    length, heads = q.shape[:2]
    y = np.zeros((length, heads, v.shape[-1]))
    for token in range(length):
        last = context + token
        first = 0 if window is None else max(0, last - window + 1)
        for head in range(heads):
            shared = head // (heads // k.shape[1])
            scores = k[first : last + 1, shared] @ q[token, head] * scale
            y[token, head] = softmax(scores) @ v[first : last + 1, shared]
    return y


def kda_gate(z: Array, a_log: Array, dt_bias: Array, b: Array, lower_bound: float | None) -> tuple[Array, Array]:
    rate, shifted = np.exp(a_log)[:, None], z + dt_bias
    g = -rate * np.logaddexp(0.0, shifted) if lower_bound is None else lower_bound * sigmoid(rate * shifted)
    return g, sigmoid(b)


def delta_rule(q: Array, k: Array, v: Array, g: Array, beta: Array, state: Array, scale: float) -> tuple[Array, Array]:
    """One sequence: q, k, g [length, heads, key], v [length, heads, value], state [heads, key, value]."""
    state, outputs = state.copy(), np.zeros(v.shape)
    for t in range(len(q)):
        for head in range(q.shape[1]):
            decayed = np.exp(g[t, head])[:, None] * state[head]
            error = v[t, head] - decayed.T @ k[t, head]
            state[head] = decayed + beta[t, head] * np.outer(k[t, head], error)
            outputs[t, head] = scale * state[head].T @ q[t, head]
    return outputs, state


def route(
    scores: Array,
    biased: Array,
    top_k: int,
    renormalize: bool,
    scaling_factor: float,
    groups: tuple[int, int],
    best_of_group: int = 2,
) -> tuple[Array, Indices]:
    """Choose by `biased`, weigh by `scores` [tokens, experts]; `groups` is (how many, how many may be used).

    A group is worth its `best_of_group` best experts together.
    """
    weights, ids = np.zeros((len(scores), top_k)), np.zeros((len(scores), top_k), dtype=np.int64)
    for token, (score, choice) in enumerate(zip(scores, biased, strict=True)):
        eligible = _eligible(choice, *groups, best_of_group)
        ranked = sorted(eligible, key=lambda expert: (-choice[expert], expert))[:top_k]
        chosen = score[ranked]
        weights[token] = scaling_factor * (chosen / chosen.sum() if renormalize else chosen)
        ids[token] = ranked
    return weights, ids


def _eligible(choice: Array, num_groups: int, usable: int, best: int) -> list[int]:
    size = len(choice) // num_groups
    worth = [np.sort(choice[g * size : (g + 1) * size])[-best:].sum() for g in range(num_groups)]
    kept = sorted(range(num_groups), key=lambda group: (-worth[group], group))[:usable]
    return [expert for group in kept for expert in range(group * size, (group + 1) * size)]


def routed_experts(
    x: Array,
    weights: Array,
    ids: Indices,
    matrices: Sequence[tuple[Array, Array, Array]],
    activation: Callable[[Array, Array], Array],
) -> Array:
    """Token by token, expert by expert; `matrices` holds gate, up and down of every expert."""
    y = np.zeros(x.shape)
    for token in range(len(x)):
        for weight, expert in zip(weights[token], ids[token], strict=True):
            gate, up, down = matrices[expert]
            y[token] += weight * (down @ activation(gate @ x[token], up @ x[token]))
    return y


def penalise(
    logits: Array, prompt: Sequence[int], generated: Sequence[int], presence: float, frequency: float, repetition: float
) -> Array:
    """OpenAI's penalties on what was generated, then CTRL's (Keskar et al. 2019) on all that was seen."""
    adjusted = logits.copy()
    for token in set(generated):
        adjusted[token] -= presence + frequency * generated.count(token)
    for token in {*prompt, *generated}:
        adjusted[token] = adjusted[token] / repetition if adjusted[token] > 0 else adjusted[token] * repetition
    return adjusted


def mxfp4(packed: NDArray[np.uint8], scale: NDArray[np.uint8]) -> Array:
    """E2M1 by its fields (sign, two exponent bits with bias 1, one mantissa bit), low nibble first."""
    nibbles = np.stack((packed % 16, packed // 16), axis=-1).reshape(len(packed), -1).astype(np.int64)
    sign, exponent, mantissa = nibbles // 8, nibbles // 2 % 4, nibbles % 2
    magnitude = np.where(exponent == 0, mantissa / 2.0, (1.0 + mantissa / 2.0) * 2.0 ** (exponent - 1.0))
    per_value = np.repeat(2.0 ** (scale.astype(np.float64) - 127.0), nibbles.shape[1] // scale.shape[1], axis=1)
    return np.where(sign == 1, -magnitude, magnitude) * per_value


def bilinear(grid: Array, rows: int, columns: int) -> Array:
    """A grid [rows, columns, width] at another size: half-pixel centres, clamped at the edges, no antialias."""

    def sources(size: int, target: int) -> tuple[Indices, Indices, Array]:
        place = np.clip((np.arange(target) + 0.5) * size / target - 0.5, 0.0, size - 1.0)
        low = np.floor(place).astype(np.int64)
        return low, np.minimum(low + 1, size - 1), place - low

    top, bottom, down = sources(grid.shape[0], rows)
    left, right, across = sources(grid.shape[1], columns)
    along = grid[:, left] * (1.0 - across)[None, :, None] + grid[:, right] * across[None, :, None]
    return along[top] * (1.0 - down)[:, None, None] + along[bottom] * down[:, None, None]


def position_embed(grid: Array, item: tuple[int, int, int]) -> Array:
    """The resampled grid for every frame; clips add [sin | cos] of the frame number at falling frequencies."""
    frames, rows, columns = item
    space = bilinear(grid, rows, columns).reshape(rows * columns, -1)
    half = grid.shape[-1] // 2
    frequencies = 10000.0 ** (-np.arange(half) / half)
    parts = []
    for frame in range(frames):
        signal = np.concatenate((np.sin(frame * frequencies), np.cos(frame * frequencies)))
        parts.append(space + signal if frames > 1 else space)
    return np.concatenate(parts)


def full_attention(q: Array, k: Array, v: Array, lengths: Sequence[int], scale: float) -> Array:
    """Every patch reads all patches of its own item; q, k, v [patches, heads, head_dim]."""
    y, start = np.zeros(v.shape), 0
    for length in lengths:
        own = slice(start, start + length)
        for head in range(q.shape[1]):
            y[own, head] = softmax(q[own, head] @ k[own, head].T * scale) @ v[own, head]
        start += length
    return y


def patch_merge(x: Array, items: Sequence[tuple[int, int, int]], merge: tuple[int, int]) -> Array:
    """Mean over frames, then cells by rows; the patches of a cell by rows as well: [merged, cell, width]."""
    cells, start = [], 0
    for frames, rows, columns in items:
        mean = x[start : start + frames * rows * columns].reshape(frames, rows, columns, -1).mean(axis=0)
        start += frames * rows * columns
        for row in range(0, rows, merge[0]):
            for column in range(0, columns, merge[1]):
                cells.append(mean[row : row + merge[0], column : column + merge[1]].reshape(-1, x.shape[-1]))
    return np.stack(cells)


def rope_frequencies(theta: float, pairs: int, scaling: str, parameters: Mapping[str, float]) -> tuple[Array, float]:
    """Angular frequency of every pair, and the factor on cos and sin; pair by pair from the papers' wavelengths."""
    frequencies = theta ** (-np.arange(pairs) / pairs)
    if scaling == "none":
        return frequencies, 1.0
    factor = parameters["factor"]
    if scaling == "linear":
        return frequencies / factor, 1.0
    original = parameters["original_max_position_embeddings"]
    if scaling == "llama3":
        return np.array([_llama3(f, original, factor, parameters) for f in frequencies]), 1.0
    # YaRN: the pair that makes `turns` turns over the original context has index pairs * log(...) / log(theta).
    fast, slow = (pairs * np.log(original / (turns * 2 * np.pi)) / np.log(theta) for turns in (32.0, 1.0))
    low, high = max(np.floor(fast), 0.0), min(np.ceil(slow), 2 * pairs - 1.0)
    extrapolated = 1.0 - np.clip((np.arange(pairs) - low) / max(high - low, 1e-3), 0.0, 1.0)
    mixed = frequencies / factor * (1.0 - extrapolated) + frequencies * extrapolated
    return mixed, 0.1 * float(np.log(factor)) + 1.0


def _llama3(frequency: float, original: float, factor: float, parameters: Mapping[str, float]) -> float:
    wavelength = 2 * np.pi / frequency
    if wavelength < original / parameters["high_freq_factor"]:
        return frequency
    if wavelength > original / parameters["low_freq_factor"]:
        return frequency / factor
    span = parameters["high_freq_factor"] - parameters["low_freq_factor"]
    share = (original / wavelength - parameters["low_freq_factor"]) / span
    return (1.0 - share) * frequency / factor + share * frequency
