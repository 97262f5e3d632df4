"""Hyper-connections: several residual streams, mixed by weights computed from them (arXiv 2409.19606, DeepSeek-V4).

`streams` is [tokens, streams, width]. fn [weights, streams x width], base [weights] and scale [kinds of weights] are
float32; so is everything inside.
"""

from __future__ import annotations

import torch

from day0.runtime.ops.norm import unit_rms_norm


def hyper_connection_read(
    streams: torch.Tensor,
    fn: torch.Tensor,
    base: torch.Tensor,
    scale: torch.Tensor,
    norm_eps: float,
    eps: float,
    iterations: int | None,
    write_scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a branch reads [tokens, width], and its weights [tokens, weights] float32: reading, writing, mixing.

    With n streams the first n weights are sigmoid(.) + eps and sum the streams up, the next n are write_scale x
    sigmoid(.). Where `iterations` is a number n x n more make a mixing matrix [from, to], a softmax over `to` plus
    eps, which columns and rows are divided by in turn, so often, until it is nearly doubly stochastic
    (Sinkhorn-Knopp). `norm_eps` is that of the norm over all streams together.
    """
    count = streams.shape[1]
    raw = unit_rms_norm(streams.flatten(1).float(), norm_eps) @ fn.float().T
    kinds = [count, count] if iterations is None else [count, count, count * count]
    parts = [
        part * factor + shift
        for part, factor, shift in zip(raw.split(kinds, dim=-1), scale.float(), base.float().split(kinds), strict=True)
    ]
    reading = torch.sigmoid(parts[0]) + eps
    weights = [reading, write_scale * torch.sigmoid(parts[1])]
    if iterations is not None:
        weights.append(_doubly_stochastic(parts[2].unflatten(-1, (count, count)), eps, iterations).flatten(-2))
    mixed = (reading[..., None] * streams.float()).sum(1).to(streams.dtype)
    return mixed, torch.cat(weights, dim=-1)


def _doubly_stochastic(logits: torch.Tensor, eps: float, iterations: int) -> torch.Tensor:
    matrix = torch.softmax(logits, dim=-1) + eps
    for step in range(iterations):
        if step:
            matrix = matrix / (matrix.sum(-1, keepdim=True) + eps)
        matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
    return matrix


def hyper_connection_write(
    streams: torch.Tensor, branch: torch.Tensor, weights: torch.Tensor, iterations: int | None
) -> torch.Tensor:
    """The streams [tokens, streams, width] after a branch's output [tokens, width] has joined them.

    Stream j becomes sum_i mixing[i, j] x stream i, or stays where nothing is mixed, plus writing[j] x branch.
    """
    count = streams.shape[1]
    wide = streams.float()
    if iterations is not None:
        mixing = weights[:, 2 * count :].unflatten(-1, (count, count))
        wide = mixing.transpose(1, 2) @ wide
    return (wide + weights[:, count : 2 * count, None] * branch.float()[:, None]).to(streams.dtype)


def hyper_connection_join(
    streams: torch.Tensor,
    fn: torch.Tensor | None,
    base: torch.Tensor | None,
    scale: torch.Tensor | None,
    norm_eps: float,
    eps: float,
) -> torch.Tensor:
    """The streams as one, [tokens, width]: summed by sigmoid(.) + eps of weights computed alike, or their mean."""
    if fn is None or base is None or scale is None:
        return streams.float().mean(1).to(streams.dtype)
    raw = unit_rms_norm(streams.flatten(1).float(), norm_eps) @ fn.float().T
    weights = torch.sigmoid(raw * scale.float() + base.float()) + eps
    return (weights[..., None] * streams.float()).sum(1).to(streams.dtype)
