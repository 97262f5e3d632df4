"""What is kept of every traced tensor, also where the tensor itself is not: size, range, faults, a hash."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

SAMPLE_SEED = 0x5EED


@dataclass(frozen=True, slots=True)
class Statistics:
    """Numbers over all finite elements, float64; None where there is none. `sha256` is of the bytes as stored."""

    mean: float | None
    rms: float | None
    absmax: float | None
    num_nan: int
    num_inf: int
    sha256: str


def statistics(tensor: Tensor) -> Statistics:
    """Measure one tensor of any shape and dtype."""
    host = tensor.detach().to("cpu").contiguous()
    values = host.to(torch.float64).flatten()
    nan, inf = values.isnan(), values.isinf()
    finite = values[~(nan | inf)]
    raw = host.flatten().view(torch.uint8).numpy().tobytes() if host.numel() else b""
    digest = hashlib.sha256(raw).hexdigest()
    if finite.numel() == 0:
        return Statistics(None, None, None, int(nan.sum()), int(inf.sum()), digest)
    return Statistics(
        mean=float(finite.mean()),
        rms=float(finite.square().mean().sqrt()),
        absmax=float(finite.abs().max()),
        num_nan=int(nan.sum()),
        num_inf=int(inf.sum()),
        sha256=digest,
    )


def sampled(tensor: Tensor, channels: int) -> Tensor:
    """`channels` of the elements of every row [rows, ...] -> [rows, channels]; the same of every tensor of a width.

    Rows stay whole in number, so that a deviation still has a token position. A tensor with fewer channels, or with
    whole numbers in it, is kept as it is.
    """
    if tensor.dim() < 2 or not tensor.is_floating_point():
        return tensor
    flat = tensor.flatten(1)
    width = flat.shape[1]
    if width <= channels:
        return tensor
    order = torch.randperm(width, generator=torch.Generator().manual_seed(SAMPLE_SEED + width))
    return flat[:, order[:channels].sort().values.to(tensor.device)]
