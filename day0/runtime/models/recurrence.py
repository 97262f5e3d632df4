"""What mixers with a state of fixed size share: convolution and recurrence over every sequence of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import nn

from day0.runtime.models.context import LayerContext
from day0.runtime.models.linear import weight
from day0.runtime.ops.registry import Operators

Recurrence = Callable[..., tuple[torch.Tensor, torch.Tensor]]
"""Called with each input [sequences, length, ...] and the states [sequences, ...]; gives outputs and new states."""


class ShortConv(nn.Module):
    """Owns the taps of one depthwise causal convolution, stored [width, 1, taps], and its bias."""

    def __init__(self, width: int, taps: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = weight(width, 1, taps)
        self.bias = weight(width) if bias else None


def convolve(
    x: torch.Tensor,
    convolutions: Sequence[ShortConv],
    activation: Literal["silu"] | None,
    context: LayerContext,
    ops: Operators,
) -> torch.Tensor:
    """x [tokens, width], whose channels belong to the convolutions one after another; moves the "conv" states on.

    A state is [..., taps - 1] with the channels before it in the same order, on as many axes as the spec gives it.
    """
    taps = torch.cat([conv.weight[:, 0] for conv in convolutions])
    biases = tuple(conv.bias for conv in convolutions if conv.bias is not None)
    assert len(biases) in (0, len(convolutions)), "convolutions side by side have all a bias or none"
    states = context.cache.state(context.index, "conv")
    outputs = []
    for group in context.batch.groups:
        inputs = x[group.start : group.end].unflatten(0, (group.sequences, group.length))
        past = states[group.state_slots]
        flat = past.reshape(group.sequences, x.shape[-1], taps.shape[-1] - 1)
        if biases:
            output, new_past = ops["causal_conv1d_bias"](inputs, taps, torch.cat(biases), flat, activation)
        else:
            output, new_past = ops["causal_conv1d"](inputs, taps, flat, activation)
        states[group.state_slots] = new_past.reshape(past.shape)
        outputs.append(output.flatten(0, 1))
    _save_state("mixer.conv_state", states, context)
    return torch.cat(outputs)


def recur(
    inputs: Sequence[torch.Tensor],
    step: Recurrence,
    chunk: Recurrence,
    context: LayerContext,
    step_in_place: Callable[..., torch.Tensor] | None = None,
) -> torch.Tensor:
    """Run a recurrence over inputs [tokens, ...] and give its outputs [tokens, ...]; moves the "recurrent" states on.

    Sequences with one new token take `step`, all at once; the chunked form pays above that. Where there is a form that
    is given all states and the sequences' slots, a step copies none.
    """
    states = context.cache.state(context.index, "recurrent")
    outputs = []
    for group in context.batch.groups:
        shape = (group.sequences, group.length)
        own = [x[group.start : group.end].unflatten(0, shape) for x in inputs]
        if group.length == 1 and step_in_place is not None:
            output = step_in_place(*own, states, group.state_slots)
        else:
            output, new_states = (step if group.length == 1 else chunk)(*own, states[group.state_slots])
            states[group.state_slots] = new_states
        outputs.append(output.flatten(0, 1))
    _save_state("mixer.state", states, context)
    return torch.cat(outputs)


def _save_state(name: str, states: torch.Tensor, context: LayerContext) -> None:
    """A trace is of one sequence; what a step of several leaves behind has no place in it."""
    groups = context.batch.groups
    if len(groups) == 1:
        context.save(name, states[groups[0].state_slots][0])
