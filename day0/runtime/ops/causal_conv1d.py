"""Depthwise causal convolution that remembers its last inputs."""

from __future__ import annotations

import torch
from torch.nn import functional


def causal_conv1d(x: torch.Tensor, weight: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """silu of the causal convolution of each channel, float32 inside; the last tap multiplies the current token.

    x [sequences, length, width]; weight [width, taps]; state [sequences, width, taps - 1] with the oldest input first,
    zeros at the start of a sequence. Gives y like x and the new state in state's dtype.
    """
    taps, length = weight.shape[1], x.shape[1]
    inputs = torch.cat((state.transpose(1, 2).to(x.dtype), x), dim=1)  # [sequences, taps - 1 + length, width]
    output = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for tap in range(taps):
        output += inputs[:, tap : tap + length].float() * weight[:, tap].float()
    new_state = inputs[:, inputs.shape[1] - (taps - 1) :].transpose(1, 2).to(state.dtype)
    return functional.silu(output).to(x.dtype), new_state
