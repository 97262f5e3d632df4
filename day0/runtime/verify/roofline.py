"""How fast a device copies and multiplies, and what part of that a kernel reaches; by the device's own clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

COPIED = 1 << 30
"""Bytes of the copy that measures bandwidth: far more than any cache holds."""
SIDE = 8192
"""Rows and columns of the product that measures arithmetic."""
CALLS = 10


@dataclass(frozen=True, slots=True)
class Roofline:
    """What was measured on the device: bytes read and written by a copy, and operations of a bfloat16 product."""

    bytes_per_second: float
    operations_per_second: float


def has_clock(device: torch.device) -> bool:
    """Whether times are the device's own; a host's are those of whoever shares it, and say little."""
    return device.type != "cpu"


def measure_roofline(device: torch.device) -> Roofline:
    # Random numbers, for constant ones switch fewer transistors and let a chip clock higher than real work does.
    source = torch.randint(256, (COPIED,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = 2 * COPIED / seconds(lambda: target.copy_(source), device)
    left, right = (torch.randn(SIDE, SIDE, dtype=torch.bfloat16, device=device) for _ in range(2))
    return Roofline(copied, 2 * SIDE**3 / seconds(lambda: left @ right, device))


def seconds(call: Callable[[], Any], device: torch.device) -> float:
    """The median of some calls, after one that compiles."""
    call()
    torch.accelerator.synchronize(device)
    marks = [[torch.Event(device=device, enable_timing=True) for _ in range(2)] for _ in range(CALLS)]
    for start, end in marks:
        start.record()
        call()
        end.record()
    torch.accelerator.synchronize(device)
    return sorted(start.elapsed_time(end) for start, end in marks)[CALLS // 2] / 1e3


def share_of_bandwidth(nbytes: int, took: float, roofline: Roofline) -> float:
    """The time that a copy would take to read or write as many bytes, over the time that it took."""
    return nbytes / roofline.bytes_per_second / took


def bytes_of(arguments: Any) -> int:
    """Bytes of all tensors, in lists too."""
    if isinstance(arguments, torch.Tensor):
        return arguments.nbytes
    return sum(map(bytes_of, arguments)) if isinstance(arguments, Sequence) and not isinstance(arguments, str) else 0
