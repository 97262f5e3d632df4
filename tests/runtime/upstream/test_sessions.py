"""A cache object per sequence: counted, copied, poisoned and let go of."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from day0.runtime.upstream.sessions import SessionManager, Sessions, cache_bytes, cache_tensors


def manager(debug: bool = False) -> SessionManager:
    return SessionManager(8, Sessions(16, torch.float32, torch.device("cpu")), 2, debug)


def test_tensors_are_found_wherever_they_are_and_shared_memory_counts_once() -> None:
    whole = torch.zeros(8, 4)
    layer = SimpleNamespace(keys=whole[2:], values=whole[:1], lengths=[1, 2], name="layer")
    layer.parent = SimpleNamespace(layers=[layer])  # a cycle
    cache = SimpleNamespace(layers=[layer], more={"state": (torch.zeros(3), None)})
    assert len(list(cache_tensors(cache))) == 3
    assert cache_bytes(cache) == 4 * (8 * 4 + 3)
    assert cache_bytes(None) == 0


def test_a_sequence_that_ends_is_let_go_and_what_it_held_is_poisoned() -> None:
    cache = manager(debug=True)
    lease = cache.open()
    kept = torch.ones(5)
    session = cache.storage.session(lease.state_slot)
    session.cache, session.cached = [kept], 5
    assert cache.storage.bytes_held == 20
    cache.close(lease)
    assert kept.isnan().all()
    assert cache.storage.bytes_held == 0
    assert cache.slots.num_free == 2 and cache.pages.num_free == 8


def test_a_slot_begins_empty_again() -> None:
    cache = manager()
    lease = cache.open()
    slot = lease.state_slot
    cache.storage.session(slot).token_ids.append(7)
    cache.close(lease)
    assert cache.open().state_slot == slot
    assert cache.storage.session(slot).token_ids == []


def test_a_copy_goes_its_own_way() -> None:
    cache = manager()
    lease = cache.open()
    cache.grow(lease, 2)
    one = cache.storage.session(lease.state_slot)
    one.token_ids, one.cache, one.cached = [7, 8], [torch.ones(2)], 2
    two = cache.storage.session(cache.fork(lease, 2).state_slot)
    two.token_ids.append(9)
    two.cache[0].zero_()
    assert (one.token_ids, one.cache[0].tolist(), two.cached) == ([7, 8], [1.0, 1.0], 2)
