"""How far rounding alone moves each tensor of a model: the measured floor that tolerances stand on.

A model may damp rounding errors or amplify them a thousandfold, and differently from layer to layer; no constant is
right for all. So the input is moved by one unit in the last place, at random, and whatever that does to a tensor is
what two correct ways of computing may do to it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from day0.numerics.metrics import difference

FACTOR = 10.0
"""Tolerance over floor. Correct paths through tiny and trained models stayed below 2.5 (chunks of 1 to 64 tokens,
batches, transformers); the smallest injected faults lie beyond 100."""
LEAST_ULPS = 8
"""Tolerance where the floor is lower still: a few roundings of the tensor's own."""
MOST = 0.3
"""Tolerance at most: a model that amplifies rounding beyond this cannot be told from a broken one."""
SAMPLES = 3


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """Worst row error of each tensor under rounding-sized noise; `eps` is the dtype's unit in the last place."""

    errors: Mapping[str, float]
    eps: float

    def tolerance(self, name: str) -> float:
        """What the worst row of a tensor may be off, relative to its norm."""
        return min(MOST, max(FACTOR * self.errors.get(name, 0.0), LEAST_ULPS * self.eps))


def noise_floor(forward: Callable[[Tensor], Mapping[str, Tensor]], embeddings: Tensor, eps: float) -> NoiseFloor:
    """Run `forward` on embeddings [tokens, hidden] as they are, and `SAMPLES` times moved by one relative `eps`."""
    sound = forward(embeddings)
    errors = dict.fromkeys(sound, 0.0)
    for seed in range(SAMPLES):
        noise = torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(seed))
        moved = embeddings.float() * (1 + eps * noise.to(embeddings.device))
        for name, tensor in forward(moved.to(embeddings.dtype)).items():
            error = difference(tensor, sound[name]).error
            # What is not finite or constant has no error and gets no allowance from here.
            errors[name] = max(errors[name], error if error == error else 0.0)
    return NoiseFloor(errors, eps)
