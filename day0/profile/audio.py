"""Encoders of sounds and what joins them to the text model."""

from __future__ import annotations

from dataclasses import dataclass

from day0.profile.tower_parts import Stage


@dataclass(frozen=True, slots=True)
class AudioTower:
    """An audio tower with its projector.

    `features` are the numbers of one frame that go in: mel bins, or 1 for the waveform itself. `frames_per_token` of
    them become one token of `output_size` channels. `positions` is "rotary", "relative" (by distance) or "convolution"
    (order is told by convolutions alone); towers without attention have no heads. `placeholder_token_id` is the token
    of the prompt that a piece of sound replaces.
    """

    kind: str
    num_layers: int
    hidden_size: int
    num_heads: int
    features: int
    frames_per_token: int
    positions: str
    projector: str
    output_size: int
    stages: tuple[Stage, ...]
    placeholder_token_id: int | None = None
