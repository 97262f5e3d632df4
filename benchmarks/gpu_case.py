"""What a row of the kernel benchmark is: calls to time, what they must give, and the bytes they must move."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A case with its tensors on the device.

    `calls` do the same on different inputs, so that no cache holds them all; `check` gives the error against the
    reference over the reference's size (0 where bits must be equal and are). `peers` are other ways to the same
    result, `variants` the same kernel with other settings; both are timed like `calls`.
    """

    calls: Sequence[Call]
    check: Callable[[], float]
    peers: Mapping[str, Sequence[Call]] = field(default_factory=dict)
    variants: Mapping[str, Sequence[Call]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel at one shape. `bytes` are read and written at the least, `flops` done; `allowed` bounds the error.

    `wanted` is the share of the roofline that the kernel is to reach.
    """

    kernel: str
    shape: str
    prepare: Callable[[torch.device], Prepared]
    bytes: float
    flops: float = 0.0
    wanted: float = 0.7
    allowed: float = 0.0


def relative_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The norm of the difference over that of the reference, in float64."""
    reference = wanted.double()
    return float((found.double() - reference).norm() / reference.norm())
