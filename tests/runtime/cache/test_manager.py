from pathlib import Path

import pytest
import torch

from day0.profile.read import read_profile
from day0.runtime.cache.manager import CacheManager
from day0.runtime.cache.pages import PageAllocator
from day0.runtime.cache.states import SlotAllocator
from day0.runtime.cache.storage import CacheStorage
from day0.source.resolve import resolve


@pytest.fixture
def make_manager(tiny_kimi_k3: Path):
    layers = read_profile(resolve(str(tiny_kimi_k3))).layers

    def make(debug: bool) -> CacheManager:
        storage = CacheStorage(layers, 5, 4, 2, torch.float32, torch.float32, torch.device("cpu"))
        return CacheManager(storage, PageAllocator(5, 4), SlotAllocator(2), debug)

    return make


def test_a_reused_slot_starts_from_zero(make_manager) -> None:
    manager = make_manager(debug=True)
    slot = manager.open()
    manager.storage.state(0, "recurrent")[slot] = 3.0
    manager.close([], slot)
    assert manager.storage.state(0, "recurrent")[slot].isnan().all(), "debug fills what is given back"
    assert {manager.open(), manager.open()} == {0, 1}
    assert not manager.storage.state(0, "recurrent").any()


def test_without_debug_nothing_is_overwritten_on_the_way_back(make_manager) -> None:
    manager = make_manager(debug=False)
    pages: list[int] = []
    slot = manager.open()
    manager.pages.grow(pages, 5)
    manager.storage.plane(3, "latent")[:] = 2.0
    manager.close(pages, slot)
    assert (manager.storage.plane(3, "latent") == 2.0).all()


def test_can_open_asks_for_pages_and_a_slot(make_manager) -> None:
    manager = make_manager(debug=False)
    assert manager.capacity == 20
    assert manager.can_open(20)
    assert not manager.can_open(21)
    manager.open()
    assert manager.can_open(20)
    manager.open()
    assert not manager.can_open(1), "both state slots are lent"


def test_closing_gives_everything_back(make_manager) -> None:
    manager = make_manager(debug=True)
    manager.storage.plane(3, "latent").zero_()
    pages: list[int] = []
    slot = manager.open()
    manager.pages.grow(pages, 17)
    lent = list(pages)
    manager.close(pages, slot)
    assert (pages, manager.pages.num_free, manager.slots.num_free) == ([], 5, 2)
    rows = manager.storage.plane(3, "latent").isnan().all(dim=1)
    assert rows.tolist() == [slot // 4 in lent for slot in range(20)]
