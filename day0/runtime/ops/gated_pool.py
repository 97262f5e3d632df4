"""One entry out of several tokens: a mean per channel, weighed by a softmax over the tokens."""

from __future__ import annotations

import torch


def gated_pool(
    x: torch.Tensor, gate: torch.Tensor, bias: torch.Tensor, overlap: bool, first: torch.Tensor | None = None
) -> torch.Tensor:
    """sum_t softmax_t(gate + bias) x over the tokens of each entry, float32 inside (GLM-5-Next, DeepSeek-V4).

    x and gate [entries, tokens, width], oldest token first; bias [stride, width] by a token's place. Without overlap
    an entry is of `stride` tokens, and the result [entries, width]. With `overlap` it is of 2 x stride: of the older
    half count the first width / 2 channels, of its own tokens the others, and the result is [entries, width / 2].
    `first` [entries] bool marks a sequence's first entry, which has no older half. In x's dtype.
    """
    logits, values = gate.float(), x.float()
    if overlap:
        stride, half = bias.shape[0], x.shape[-1] // 2
        logits, values = (
            torch.cat((part[:, :stride, :half], part[:, stride:, half:]), dim=1) for part in (logits, values)
        )
        logits = logits + torch.cat((bias[:, :half], bias[:, half:])).float()
        if first is not None:
            older = torch.arange(2 * stride, device=x.device) < stride
            logits = logits.masked_fill((first[:, None] & older)[..., None], float("-inf"))
    else:
        logits = logits + bias.float()
    return (torch.softmax(logits, dim=1) * values).sum(1).to(x.dtype)
