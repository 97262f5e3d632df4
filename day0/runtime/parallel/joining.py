"""How a rank finds the others: a store, then process groups, tried again with growing pauses until all are there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from day0.errors import EnvironmentFault
from day0.runtime.parallel.meeting import Meeting
from day0.runtime.parallel.watch import ALIVE, Address, Watch, connect

ATTEMPTS = 5
FIRST_PAUSE = 0.5
"""Seconds before the second attempt; twice as many before each further one."""
FORM_SECONDS = 60.0
"""How long a question to the store may take."""
ARRIVE_SECONDS = 300.0
"""How long ranks wait for each other to start: a device's libraries may take minutes to load."""
STEP_MINUTES = 30
"""How long a rank waits in one collective for others that are alive."""
FOREVER = timedelta(days=365)
"""How long a rank without work waits for the next command."""

Form = Callable[..., Any]


@dataclass(slots=True)
class Joined:
    """A rank that has found the others: its number, device, and the meeting of all."""

    rank: int
    size: int
    device: torch.device
    store: dist.Store
    meeting: Meeting
    watch: Watch

    def leave(self) -> None:
        """Give the groups back; every rank does so at its end."""
        self.watch.stop()
        dist.destroy_process_group()


def open_store() -> tuple[dist.TCPStore, Address]:
    """The store that rank 0 holds, on a free port of this host."""
    host = "127.0.0.1"
    store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=FORM_SECONDS))
    return store, Address(host, store.port)


def join(
    rank: int,
    size: int,
    address: Address,
    device: torch.device,
    watch: Watch,
    store: dist.TCPStore | None = None,
    form: Form = dist.init_process_group,
) -> Joined:
    """Form the groups of all ranks, over the backend that belongs to the device; rank 0 brings its own `store`.

    An attempt counts only where every rank got through it. Raises EnvironmentFault where none of them did.
    """
    if store is None:
        store = _tried("the store of rank 0 cannot be reached", lambda: connect(address, FORM_SECONDS))
    _wait_for_all(store, rank, size, watch)
    backend = dist.get_default_backend_for_device(device)
    for attempt in range(ATTEMPTS):
        fault = _form(form, backend, dist.PrefixStore(f"groups/{attempt}", store), rank, size)
        store.set(f"formed/{attempt}/{rank}", fault or "ok")
        said = [store.get(f"formed/{attempt}/{other}").decode() for other in range(size)]
        if all(word == "ok" for word in said):
            break
        if dist.is_initialized():
            dist.destroy_process_group()
        if attempt == ATTEMPTS - 1:
            other = next(number for number, word in enumerate(said) if word != "ok")
            raise EnvironmentFault(
                f"the ranks could not form a group in {ATTEMPTS} attempts: rank {other}: {said[other]}",
                hint="GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME name the interface that all ranks share",
            )
        time.sleep(FIRST_PAUSE * 2**attempt)
    members = dist.new_group(backend="gloo", timeout=FOREVER)
    assert isinstance(members, dist.ProcessGroup)
    return Joined(rank, size, device, store, Meeting(size, rank, members, watch.explain), watch)


def _wait_for_all(store: dist.TCPStore, rank: int, size: int, watch: Watch) -> None:
    """Until every rank has come; raises EnvironmentFault for one that has died on its way, or does not come at all."""
    store.set(f"{ALIVE}/{rank}", "0")  # from here on its silence counts
    store.set(f"here/{rank}", "yes")
    end = time.monotonic() + ARRIVE_SECONDS
    for other in range(size):
        while not store.check([f"here/{other}"]):
            watch.check()
            if time.monotonic() > end:
                raise EnvironmentFault(f"rank {other} of {size} did not come within {ARRIVE_SECONDS:.0f} s")
            time.sleep(0.02)


def _form(form: Form, backend: str, store: dist.Store, rank: int, size: int) -> str:
    """Why this attempt failed here; empty where it did not."""
    try:
        form(backend, store=store, rank=rank, world_size=size, timeout=timedelta(minutes=STEP_MINUTES))
    except (RuntimeError, OSError, ValueError) as error:
        return str(error).splitlines()[0] or type(error).__name__
    return ""


def _tried(what: str, call: Callable[[], dist.TCPStore]) -> dist.TCPStore:
    """The result of a call that may come too early, tried with growing pauses."""
    for attempt in range(ATTEMPTS):
        try:
            return call()
        except (RuntimeError, OSError) as error:
            if attempt == ATTEMPTS - 1:
                raise EnvironmentFault(f"{what}: {str(error).splitlines()[0]}") from error
            time.sleep(FIRST_PAUSE * 2**attempt)
    raise AssertionError("the last attempt returns or raises")
