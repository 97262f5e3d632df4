import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from day0.runtime.cache.states import SlotAllocator


@settings(max_examples=100, deadline=None)
@given(num_slots=st.integers(1, 6), takes=st.lists(st.booleans(), max_size=40))
def test_slots_are_lent_to_one_at_a_time_and_none_is_lost(num_slots, takes):
    allocator, held = SlotAllocator(num_slots), []
    for take in takes:
        if take and allocator.num_free:
            held.append(allocator.take())
        elif not take and held:
            allocator.release(held.pop(0))
        assert len(set(held)) == len(held)
        assert set(held) <= set(range(num_slots))
        assert allocator.num_free == num_slots - len(held)


def test_a_model_without_state_needs_no_slots():
    allocator = SlotAllocator(0)
    assert allocator.take() == -1
    allocator.release(-1)
    assert allocator.num_free == 0


def test_a_slot_counts_how_often_it_was_given_back():
    allocator = SlotAllocator(2)
    for _ in range(3):
        allocator.release(allocator.take())
    assert sorted(allocator.generations) == [0, 3]


def test_giving_back_twice_is_a_defect():
    allocator = SlotAllocator(2)
    slot = allocator.take()
    allocator.release(slot)
    with pytest.raises(KeyError):
        allocator.release(slot)


def test_taking_from_none_is_a_defect():
    allocator = SlotAllocator(1)
    allocator.take()
    with pytest.raises(IndexError):
        allocator.take()
