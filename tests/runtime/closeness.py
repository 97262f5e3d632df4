"""How far two tensors are apart, in the words the golden data use; independent of `day0.numerics`."""

from __future__ import annotations

from typing import Any

import torch


def wide(values: Any) -> torch.Tensor:
    """A torch tensor or numpy array in float64."""
    return torch.as_tensor(values).to(torch.float64)


def relative_error(ours: Any, reference: Any) -> float:
    """Norm of the difference over the norm of the reference; infinite where ours is not finite or of another shape."""
    ours, reference = wide(ours), wide(reference)
    if ours.shape != reference.shape or not bool(torch.isfinite(ours).all()):
        return float("inf")
    return float((ours - reference).norm() / reference.norm())


def worst_error(ours: Any, reference: Any) -> float:
    """The largest difference over the largest magnitude of the reference."""
    ours, reference = wide(ours), wide(reference)
    if ours.shape != reference.shape or not bool(torch.isfinite(ours).all()):
        return float("inf")
    return float((ours - reference).abs().max() / reference.abs().max())
