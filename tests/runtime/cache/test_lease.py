import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from day0.runtime.cache.lease import Lease, StaleLease
from day0.runtime.cache.pages import token_slots


@settings(max_examples=60, deadline=None)
@given(page_size=st.integers(1, 5), parts=st.lists(st.lists(st.integers(0, 50), max_size=4), max_size=8))
def test_slots_are_those_of_its_pages_in_order(page_size: int, parts: list[list[int]]) -> None:
    lease, held = Lease(page_size, 3, 0), []
    for part in parts:
        lease.add(part, [0] * len(part))
        held += part
        wanted = token_slots(held, page_size)
        assert lease.capacity == len(wanted)
        for start, end in ((0, len(wanted)), (len(wanted) // 2, len(wanted))):
            assert np.array_equal(lease.slots(start, end), wanted[start:end])


def test_more_tokens_than_its_pages_hold() -> None:
    lease = Lease(4, 3, 0)
    lease.add([7], [0])
    with pytest.raises(AssertionError, match="5 tokens on pages for 4"):
        lease.slots(0, 5)


def test_an_ended_lease_holds_nothing_and_says_so() -> None:
    lease = Lease(4, 3, 0)
    lease.add([7, 8], [0, 0])
    assert lease.end() == ([7, 8], 3)
    assert (lease.ended, lease.pages) == (True, [])
    for use in (lambda: lease.slots(0, 1), lambda: lease.add([1], [0]), lambda: lease.state_slot, lease.end):
        with pytest.raises(StaleLease, match="has ended"):
            use()
