"""How far rounding alone moves each tensor of a model: the measured floor that tolerances stand on.

A model may damp rounding errors or amplify them a thousandfold, and differently from layer to layer; no constant is
right for all. So the input is moved by one unit in the last place, at random, and whatever that does to a tensor is
what two correct ways of computing may do to it as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from day0.numerics.metrics import Allowance, difference

FACTOR = 10.0
"""Tolerance over floor. Correct paths through tiny and trained models stayed below 2.5 (chunks of 1 to 64 tokens,
batches, transformers); the smallest injected faults lie beyond 100."""
LEAST_ULPS = 8
"""Tolerance where the floor is lower still: a few roundings of the tensor's own."""
MOST = 0.3
"""Tolerance at most. Where rounding alone moves single rows beyond it (a router that chooses other experts does), the
median row is judged instead, and a model that moves even that so far cannot be told from a broken one."""
SAMPLES = 3


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """Errors of each tensor's worst and median row under rounding-sized noise; `eps` is one unit in the last place."""

    worst: Mapping[str, float]
    median: Mapping[str, float]
    eps: float

    def allowance(self, name: str) -> Allowance:
        """How far a tensor may be off, and judged by which row."""
        if FACTOR * self.worst.get(name, 0.0) <= MOST:
            return Allowance(self.tolerance(name))
        return Allowance(self._limit(self.median.get(name, 0.0)), "median")

    def tolerance(self, name: str) -> float:
        """What a tensor's worst row may be off, relative to its norm."""
        return self._limit(self.worst.get(name, 0.0))

    def _limit(self, floor: float) -> float:
        return min(MOST, max(FACTOR * floor, LEAST_ULPS * self.eps))


def noise_floor(forward: Callable[[Tensor], Mapping[str, Tensor]], embeddings: Tensor, eps: float) -> NoiseFloor:
    """Run `forward` on embeddings [tokens, hidden] as they are, and `SAMPLES` times moved by one relative `eps`."""
    sound = forward(embeddings)
    worst = dict.fromkeys(sound, 0.0)
    median = dict(worst)
    for seed in range(SAMPLES):
        noise = torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(seed))
        moved = embeddings.float() * (1 + eps * noise.to(embeddings.device))
        for name, tensor in forward(moved.to(embeddings.dtype)).items():
            found = difference(tensor, sound[name])
            # What is not finite or constant has no error and gets no allowance from here.
            worst[name] = max(worst[name], 0.0 if math.isnan(found.error) else found.error)
            median[name] = max(median[name], 0.0 if math.isnan(found.median) else found.median)
    return NoiseFloor(worst, median, eps)
