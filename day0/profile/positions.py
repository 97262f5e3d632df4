"""Rotary position embeddings: which channels turn, and how fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RopeLayout = Literal["neox", "interleaved"]


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position embedding over the first `dim` channels of a head.

    `scaling` names the frequency rule ("none", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional");
    `parameters` are its numbers, sorted by name. "neox" rotates channel i with i + dim/2, "interleaved" rotates
    neighbours. `short_factors` and `long_factors` are longrope's divisors of each frequency, below and above the
    original length. `sections` gives the channel pairs that turn by each axis of a token's position (time, height,
    width; Qwen2-VL), empty where positions have one axis; `interleaved_sections` deals the pairs out in turn.
    """

    theta: float
    dim: int
    layout: RopeLayout = "neox"
    scaling: str = "none"
    parameters: tuple[tuple[str, float], ...] = ()
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()
    sections: tuple[int, ...] = ()
    interleaved_sections: bool = False
