"""Depthwise causal convolution that remembers its last inputs."""

from __future__ import annotations

from typing import Literal

import torch
from torch.nn import functional


def causal_conv1d(
    x: torch.Tensor, weight: torch.Tensor, state: torch.Tensor, activation: Literal["silu"] | None = "silu"
) -> tuple[torch.Tensor, torch.Tensor]:
    """The causal convolution of each channel, float32 inside; the last tap multiplies the current token.

    x [sequences, length, width]; weight [width, taps]; state [sequences, width, taps - 1] with the oldest input first,
    zeros at the start of a sequence. Gives y like x, after the activation, and the new state in state's dtype.
    """
    return _convolve(x, weight, None, state, activation)


def causal_conv1d_bias(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    state: torch.Tensor,
    activation: Literal["silu"] | None = "silu",
) -> tuple[torch.Tensor, torch.Tensor]:
    """`causal_conv1d` with a bias [width] before the activation."""
    return _convolve(x, weight, bias, state, activation)


def _convolve(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, state: torch.Tensor, activation: str | None
) -> tuple[torch.Tensor, torch.Tensor]:
    taps, length = weight.shape[1], x.shape[1]
    inputs = torch.cat((state.transpose(1, 2).to(x.dtype), x), dim=1)  # [sequences, taps - 1 + length, width]
    output = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for tap in range(taps):
        output += inputs[:, tap : tap + length].float() * weight[:, tap].float()
    if bias is not None:
        output += bias.float()
    if activation == "silu":
        output = functional.silu(output)
    else:
        assert activation is None, f"no activation {activation!r}"
    new_state = inputs[:, inputs.shape[1] - (taps - 1) :].transpose(1, 2).to(state.dtype)
    return output.to(x.dtype), new_state
