"""The life of what a sequence holds: lent, stepped, kept, restored, forked, given back; and used after that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from day0.profile.read import read_profile
from day0.runtime.cache.lease import Lease, StaleLease
from day0.runtime.cache.manager import CacheManager
from day0.runtime.cache.pages import PageAllocator
from day0.runtime.cache.prefix import NOTHING_KNOWN, PageNames, Snapshots
from day0.runtime.cache.states import SlotAllocator
from day0.runtime.cache.storage import CacheStorage
from day0.source.resolve import resolve

MakeManager = Callable[..., CacheManager]
IDS = list(range(50))


@pytest.fixture
def make_manager(tiny_kimi_k3: Path) -> MakeManager:
    """Five pages of four tokens and two state slots; room for `snapshots` states."""
    layers = read_profile(resolve(str(tiny_kimi_k3))).layers

    def make(debug: bool = True, snapshots: int = 4) -> CacheManager:
        storage = CacheStorage(layers, 5, 4, 2, torch.float32, torch.float32, torch.device("cpu"))
        kept = Snapshots(snapshots * storage.slot_bytes)
        return CacheManager(storage, PageAllocator(5, 4), SlotAllocator(2), debug, kept)

    return make


@pytest.fixture
def manager(make_manager: MakeManager) -> CacheManager:
    return make_manager()


def computed(manager: CacheManager, lease: Lease, tokens: int, value: float) -> None:
    """Room for tokens, and numbers in it as a forward would leave them."""
    manager.grow(lease, tokens)
    manager.storage.plane(3, "latent")[torch.from_numpy(lease.slots(0, tokens))] = value
    manager.storage.state(0, "recurrent")[lease.state_slot] = value


def test_a_reused_slot_starts_from_zero(manager: CacheManager) -> None:
    lease = manager.open()
    slot = lease.state_slot
    manager.storage.state(0, "recurrent")[slot] = 3.0
    manager.close(lease)
    assert manager.storage.state(0, "recurrent")[slot].isnan().all(), "debug fills what is given back"
    assert {manager.open().state_slot, manager.open().state_slot} == {0, 1}
    assert not manager.storage.state(0, "recurrent").any()


def test_without_debug_nothing_is_overwritten_on_the_way_back(make_manager: MakeManager) -> None:
    manager = make_manager(debug=False)
    lease = manager.open()
    computed(manager, lease, 5, 2.0)
    rows = torch.from_numpy(lease.slots(0, 5).copy())
    manager.close(lease)
    assert (manager.storage.plane(3, "latent")[rows] == 2.0).all()


def test_can_open_asks_for_pages_and_a_slot(manager: CacheManager) -> None:
    assert manager.capacity == 20
    assert manager.can_open(20)
    assert not manager.can_open(21)
    assert manager.can_open(16, reserve=1) and not manager.can_open(17, reserve=1)
    manager.open()
    assert manager.can_open(20)
    manager.open()
    assert not manager.can_open(1), "both state slots are lent"


def test_closing_gives_everything_back_and_poisons_it(manager: CacheManager) -> None:
    manager.storage.plane(3, "latent").zero_()
    lease = manager.open()
    computed(manager, lease, 17, 1.0)
    lent = list(lease.pages)
    manager.close(lease)
    assert (lease.pages, manager.pages.num_free, manager.slots.num_free) == ([], 5, 2)
    rows = manager.storage.plane(3, "latent").isnan().all(dim=1)
    assert rows.tolist() == [slot // 4 in lent for slot in range(20)]


def test_what_is_known_is_shared_and_its_state_restored_bit_for_bit(manager: CacheManager) -> None:
    first, names = manager.open(), PageNames(4)
    computed(manager, first, 8, 0.1)
    manager.storage.state(0, "recurrent")[first.state_slot].normal_()
    at_eight = manager.storage.state(0, "recurrent")[first.state_slot].clone()
    manager.commit(first, names, IDS, 8, keep_state=True)
    computed(manager, first, 11, 0.2)
    shared = first.pages[:2]
    found = manager.match(PageNames(4), IDS[:12])
    assert (list(found.pages), found.tokens) == (shared, 8)
    second = manager.open(found)
    assert second.pages == shared
    assert torch.equal(manager.storage.state(0, "recurrent")[second.state_slot], at_eight)
    manager.close(first)
    manager.check(second)
    assert not manager.storage.plane(3, "latent")[torch.from_numpy(second.slots(0, 8))].isnan().any()
    manager.close(second)
    assert (manager.pages.num_free, manager.pages.num_idle) == (5, 2), "kept, and free for whoever needs the room"


def test_without_a_state_there_the_pages_say_only_where_to_stop(manager: CacheManager) -> None:
    lease = manager.open()
    computed(manager, lease, 11, 0.1)
    manager.commit(lease, PageNames(4), IDS, 11, keep_state=True)  # not at the end of a page: nothing to keep
    found = manager.match(PageNames(4), IDS[:17])
    assert (found.pages, found.tokens, found.stops) == ((), 0, (8, 16))


def test_room_for_a_known_beginning_counts_its_idle_pages(manager: CacheManager) -> None:
    lease = manager.open()
    computed(manager, lease, 8, 0.1)
    manager.commit(lease, PageNames(4), IDS, 8, keep_state=True)
    manager.close(lease)
    found = manager.match(PageNames(4), IDS[:12])
    assert manager.can_open(20, found) and not manager.can_open(21, found)
    again = manager.open(found)
    manager.grow(again, 20)
    assert manager.pages.num_free == 0


def test_lost_pages_are_poisoned_and_take_their_states_along(manager: CacheManager) -> None:
    lease = manager.open()
    computed(manager, lease, 8, 0.1)
    manager.commit(lease, PageNames(4), IDS, 8, keep_state=True)
    manager.close(lease)
    assert manager.snapshots is not None and manager.snapshots.nbytes > 0
    other = manager.open()
    manager.grow(other, 20)
    assert manager.storage.plane(3, "latent")[torch.from_numpy(other.slots(0, 20))].isnan().all()
    assert manager.snapshots.nbytes == 0
    assert manager.match(PageNames(4), IDS[:12]).pages == ()


def test_what_is_not_to_be_kept_is_not_found(manager: CacheManager) -> None:
    lease = manager.open()
    computed(manager, lease, 8, float("nan"))
    manager.commit(lease, PageNames(4), IDS, 8, keep_state=True)
    manager.close(lease, keep=False)
    assert (manager.match(PageNames(4), IDS[:12]).pages, manager.pages.num_idle) == ((), 0)
    assert manager.snapshots is not None and manager.snapshots.nbytes == 0


def test_a_state_larger_than_the_budget_switches_reuse_off(make_manager: MakeManager) -> None:
    manager = make_manager(snapshots=0)
    assert manager.match(PageNames(4), IDS) == NOTHING_KNOWN


@pytest.mark.parametrize("tokens", [3, 4, 7, 8])
def test_a_fork_goes_its_own_way(manager: CacheManager, tokens: int) -> None:
    lease = manager.open()
    computed(manager, lease, tokens, 0.5)
    fork = manager.fork(lease, tokens)
    assert fork.pages[: tokens // 4] == lease.pages[: tokens // 4], "full pages are shared"
    assert not set(fork.pages[tokens // 4 :]) & set(lease.pages[tokens // 4 :])
    plane, state = manager.storage.plane(3, "latent"), manager.storage.state(0, "recurrent")
    rows = torch.from_numpy(fork.slots(0, tokens).copy())
    assert (plane[rows] == 0.5).all() and (state[fork.state_slot] == 0.5).all()
    state[lease.state_slot] = 7.0
    manager.close(lease)
    assert (plane[rows] == 0.5).all() and (state[fork.state_slot] == 0.5).all()
    manager.close(fork)
    assert (manager.pages.num_free, manager.slots.num_free) == (5, 2)


def test_a_kept_copy_of_what_was_lent_is_found_out(manager: CacheManager) -> None:
    lease = manager.open()
    manager.grow(lease, 5)
    by_detour = manager.open()
    by_detour.add(lease.pages, lease.generations)
    manager.check(by_detour)
    manager.close(lease)
    with pytest.raises(StaleLease, match="page 0 has changed hands"):
        manager.check(by_detour)


def test_a_kept_state_slot_is_found_out(manager: CacheManager) -> None:
    lease = manager.open()
    by_detour = Lease(4, lease.state_slot, lease.slot_generation)
    manager.check(by_detour)
    manager.close(lease)
    manager.open()
    with pytest.raises(StaleLease, match="state slot 0 has changed hands"):
        manager.check(by_detour)


def test_an_ended_lease_cannot_be_used(manager: CacheManager) -> None:
    lease = manager.open()
    manager.close(lease)
    for use in (manager.check, manager.close, lambda one: manager.grow(one, 4), lambda one: manager.fork(one, 0)):
        with pytest.raises(StaleLease):
            use(lease)
