"""Forming groups is tried again, with pauses, until it works on every rank or has failed often enough."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from day0.errors import EnvironmentFault
from day0.runtime.parallel import joining
from day0.runtime.parallel.joining import ATTEMPTS, join, open_store
from day0.runtime.parallel.watch import Address, Watch


class Reluctant:
    """Forms groups after so many failures, as where a port is not free yet."""

    def __init__(self, failures: int) -> None:
        self.failures, self.calls = failures, 0

    def __call__(self, *arguments: Any, **options: Any) -> None:
        self.calls += 1
        if self.calls <= self.failures:
            raise RuntimeError("connect() timed out\nand more")
        dist.init_process_group(*arguments, **options)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(joining.time, "sleep", found.append)
    return found


def test_a_group_that_fails_twice_is_formed_at_the_third_attempt(pauses: list[float]) -> None:
    store, address = open_store()
    form = Reluctant(2)
    joined = join(0, 1, address, torch.device("cpu"), Watch(0, 1, address), store, form)
    assert form.calls == 3
    assert pauses == [0.5, 1.0]
    assert joined.meeting.hear("here") == ["here"]
    joined.leave()
    assert not dist.is_initialized()


def test_a_group_that_never_forms_is_a_fault_of_the_environment(pauses: list[float]) -> None:
    store, address = open_store()
    form = Reluctant(ATTEMPTS)
    with pytest.raises(EnvironmentFault, match=r"in 5 attempts: rank 0: connect\(\) timed out$"):
        join(0, 1, address, torch.device("cpu"), Watch(0, 1, address), store, form)
    assert form.calls == ATTEMPTS
    assert pauses == [0.5, 1.0, 2.0, 4.0]


def test_a_rank_that_died_on_its_way_is_named() -> None:
    store, address = open_store()
    watch = Watch(0, 2, address, {1: "rank-1.log"})
    watch.report(1, "ended with status 1")
    with pytest.raises(EnvironmentFault, match="rank 1 of 2 ended with status 1"):
        join(0, 2, address, torch.device("cpu"), watch, store)


def test_a_store_that_is_not_there_is_asked_again(pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    store, address = open_store()
    asked: list[Address] = []

    def late(address: Address, timeout: float) -> dist.TCPStore:
        asked.append(address)
        if len(asked) < 3:
            raise RuntimeError("connection refused")
        return store

    monkeypatch.setattr(joining, "connect", late)
    join(0, 1, address, torch.device("cpu"), Watch(0, 1, address)).leave()
    assert len(asked) == 3
