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

    @property
    def follows_length(self) -> bool:
        """Whether the frequencies depend on how long a sequence is."""
        return self.scaling == "longrope" or (self.scaling == "dynamic" and "alpha" not in dict(self.parameters))

    def era(self, length: int) -> int:
        """Sequences of so many tokens turn alike where their eras are equal; keys of another era cannot be read.

        LongRoPE has two, up to the original length and beyond; under dynamic scaling every length past the one that
        the model was made for has its own.
        """
        if not self.follows_length:
            return 0
        numbers = dict(self.parameters)
        if self.scaling == "longrope":
            return int(length > numbers["original_max_position_embeddings"])
        return max(length - int(numbers["trained_length"]), 0)
