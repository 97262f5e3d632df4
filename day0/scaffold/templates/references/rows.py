"""How the rows of a step belong to sequences, and which cached rows a token sees."""

from itertools import pairwise

import torch


def sequences(starts: torch.Tensor) -> list[slice]:
    """The rows of each sequence."""
    bounds = starts.tolist()
    return [slice(first, last) for first, last in pairwise(bounds)]


def causal(length: int, context: int, window: int | None = None, chunked: bool = False) -> torch.Tensor:
    """What each of `length` new tokens sees of itself and all before it, [length, context + length] bool."""
    positions = context + torch.arange(length)[:, None]
    keys = torch.arange(context + length)[None, :]
    seen = keys <= positions
    if window is not None:
        seen &= keys >= positions // window * window if chunked else keys > positions - window
    return seen


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    seen: torch.Tensor,
    scale: float,
    sinks: torch.Tensor | None = None,
    softcap: float | None = None,
    bias: torch.Tensor | float = 0.0,
) -> torch.Tensor:
    """Softmax attention of one sequence in float32.

    q [length, heads, dim], k [keys, kv_heads, dim], v [keys, kv_heads, value_dim], seen [length, keys] bool, bias of
    the logits [heads, length, keys]; gives [length, heads, value_dim].
    """
    group = q.shape[1] // k.shape[1]
    keys, values = (x.float().repeat_interleave(group, dim=1) for x in (k, v))
    logits = torch.einsum("qhd,khd->hqk", q.float(), keys) * scale + bias
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    logits = logits.masked_fill(~seen, float("-inf"))
    if sinks is not None:
        logits = torch.cat((logits, sinks.float()[:, None, None].expand(-1, q.shape[0], 1)), dim=-1)
    weights = torch.softmax(logits, dim=-1)[..., : k.shape[0]]
    return torch.einsum("hqk,khd->qhd", weights, values)
