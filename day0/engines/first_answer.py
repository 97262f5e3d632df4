"""Whether an engine's first answer is one of a working model: finite, sensible log probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

PROMPT = "The capital of France is"
TOKENS = 4
ALTERNATIVES = 5
ROUNDING = 1e-3
"""How far sums of probabilities in low precision may be above 1."""


def implausible(logprobs: Sequence[float], tops: Sequence[Mapping[str, float]]) -> str | None:
    """What no working model answers, in words; None where nothing is wrong with a greedy answer.

    `logprobs` are natural logarithms of the chosen tokens' probabilities, `tops` those of the likeliest tokens at each
    place. All tokens alike (constant logits) is how a model looks whose weights were not loaded.
    """
    for place, value in enumerate(logprobs):
        if not math.isfinite(value):
            return f"the log probability of token {place} is {value}"
        if value > ROUNDING:
            return f"the log probability of token {place} is {value:.4f}, above 0"
    for place, top in enumerate(tops):
        values = list(top.values())
        if any(not math.isfinite(value) for value in values):
            return f"an alternative to token {place} has a log probability that is not finite"
        if math.fsum(map(math.exp, values)) > 1 + ROUNDING * max(1, len(values)):
            return f"the probabilities at token {place} add up to more than 1"
        if place < len(logprobs) and values and logprobs[place] < max(values) - ROUNDING:
            return f"token {place} was drawn greedily and is not the likeliest"
    spread = [max(top.values()) - min(top.values()) for top in tops if len(top) > 1]
    if spread and max(spread) == 0.0:
        return "all tokens are equally likely everywhere, as where no weights were loaded"
    return None
