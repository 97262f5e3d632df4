"""The clauses of the device contract on time: order in a stream and between streams, seeds, memory figures."""

from __future__ import annotations

import torch

from day0.runtime.device.clauses import INDEXING, NUMBERS
from day0.runtime.device.contract import Clause, differs

_SIZE = 1 << 22


def _copies_in_order(device: torch.device) -> str | None:
    """A copy that does not wait, overwritten at its source once the device has been waited for."""
    source = torch.full((_SIZE,), 3.0)
    copied = source.to(device, non_blocking=True)
    doubled = copied * 2  # queued behind the copy
    _wait(device)
    source.zero_()
    return differs(doubled[[0, _SIZE - 1]], [6.0, 6.0])


def _events_order_streams(device: torch.device) -> str | None:
    """What a second stream wrote before its event is seen by a stream that waits for the event."""
    if device.type == "cpu":
        return None  # a host has one order, that of the program
    aside, event = torch.Stream(device), torch.Event(device)
    target = torch.zeros(_SIZE, device=device)
    main = torch.accelerator.current_stream(device)
    aside.wait_stream(main)
    with aside:
        for _ in range(64):
            target += 1  # long enough to be still running when the reader is queued
        aside.record_event(event)
    main.wait_event(event)
    return differs((target * 2)[[0, _SIZE - 1]], [128.0, 128.0])


def _seeds_repeat(device: torch.device) -> str | None:
    draws = []
    for seed in (7, 7, 8):
        generator = torch.Generator(device=device).manual_seed(seed)
        draws.append(torch.rand(16, generator=generator, device=device))
    if not torch.equal(draws[0], draws[1]):
        return "one seed gave two sequences"
    return "two seeds gave one sequence" if torch.equal(draws[0], draws[2]) else None


def _memory_is_told(device: torch.device) -> str | None:
    if device.type == "cpu":
        return None  # asked of the operating system
    free, total = torch.accelerator.get_memory_info(device)
    if not 0 < free <= total:
        return f"{free} bytes free of {total}"
    held = torch.zeros(64 << 20, dtype=torch.uint8, device=device)
    _wait(device)
    after = torch.accelerator.get_memory_info(device)[0]
    taken = free - after
    # An allocator may have had room already; it may not gain memory by lending it.
    return f"{-taken} bytes more free after taking {held.nbytes}" if taken < 0 else None


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


TIME = (
    Clause("copies-in-order", "work queued behind a copy sees what was copied", _copies_in_order),
    Clause("events-order-streams", "weights are fetched on a second stream, with an event", _events_order_streams),
    Clause("seeds-repeat", "a seed gives the same tensor again", _seeds_repeat),
    Clause("memory-is-told", "the cache is sized by what is free", _memory_is_told),
)

CLAUSES = (*NUMBERS, *INDEXING, *TIME)
"""The whole contract."""
