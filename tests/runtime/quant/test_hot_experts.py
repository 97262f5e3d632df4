import pytest
import torch

from day0.runtime.quant.hot_experts import HotExperts, HotStats

CPU = torch.device("cpu")


def hot(budget: int, experts: int = 8) -> HotExperts:
    """Experts of two matrices, [2, 3] and [3], in float32: 36 bytes each."""
    kept = HotExperts(budget, torch.float32, CPU)
    kept.reserve(9, experts)
    kept.allocate()
    return kept


def matrices(value: float) -> tuple[torch.Tensor, ...]:
    return torch.full((2, 3), value), torch.full((3,), -value)


@pytest.mark.parametrize(("budget", "room"), [(0, 0), (35, 0), (36, 1), (107, 2), (10_000, 8)])
def test_slots_are_what_the_budget_pays_for(budget: int, room: int) -> None:
    assert hot(budget).stats.room == room
    assert hot(budget).nbytes == 36 * room <= budget


def test_a_model_without_experts_takes_nothing() -> None:
    kept = HotExperts(1 << 30, torch.float32, CPU)
    kept.allocate()
    assert (kept.nbytes, kept.stats.room) == (0, 0)


def test_copies_are_kept_and_the_longest_unused_goes_first() -> None:
    kept = hot(72)
    given = matrices(1.0)
    kept.put(("a", 0), given, ())
    given[0].zero_()
    kept.put(("b", 0), matrices(2.0), ())
    found = kept.get(("a", 0))
    assert found is not None
    assert (found[0].tolist(), found[1].tolist()) == ([[1.0] * 3] * 2, [-1.0] * 3)
    kept.put(("a", 1), matrices(3.0), ())  # over "b", which nobody asked for since
    assert kept.get(("b", 0)) is None
    assert [kept.get(key)[0][0, 0].item() for key in (("a", 0), ("a", 1))] == [1.0, 3.0]
    assert kept.stats == HotStats(hits=3, misses=1, evictions=1, kept=2, room=2)


def test_what_is_spared_is_not_overwritten() -> None:
    kept = hot(36)
    kept.put(("a", 0), matrices(1.0), ())
    kept.put(("a", 1), matrices(2.0), {("a", 0), ("a", 1)})
    assert kept.holds(("a", 0))
    assert not kept.holds(("a", 1))
    assert kept.stats.evictions == 0
