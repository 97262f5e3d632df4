"""Random inputs for measuring operators, in a dtype and as the float64 arrays of the same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Facts = Mapping[str, Any]
Prepared = tuple[tuple[Any, ...], tuple[NDArray[Any], ...]]
"""Arguments for the operator, and the outputs they must give."""


class Draw:
    """Random inputs in one dtype, each with the float64 array of the very same (rounded) numbers."""

    def __init__(self, dtype: torch.dtype, seed: int) -> None:
        self.dtype = dtype
        self.rng = np.random.default_rng(seed)

    def normal(self, *shape: int, scale: float = 1.0, dtype: torch.dtype | None = None) -> tuple[torch.Tensor, Any]:
        return self.rounded(self.rng.standard_normal(shape) * scale, dtype)

    def wide(self, *shape: int, scale: float = 1.0) -> tuple[torch.Tensor, Any]:
        """Like `normal`, in float32 whatever the model's dtype."""
        return self.normal(*shape, scale=scale, dtype=torch.float32)

    def rounded(self, values: Any, dtype: torch.dtype | None = None) -> tuple[torch.Tensor, Any]:
        tensor = torch.from_numpy(values).to(dtype or self.dtype)
        return tensor, tensor.double().numpy()

    def integers(self, high: int, *shape: int) -> NDArray[np.int64]:
        return self.rng.integers(0, high, shape)

    def choice(self, high: int, count: int) -> NDArray[np.int64]:
        """`count` different numbers below `high`, in random order."""
        return self.rng.permutation(high)[:count]
