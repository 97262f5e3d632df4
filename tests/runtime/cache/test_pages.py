import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from day0.runtime.cache.pages import PageAllocator

ACTIONS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30)), max_size=40)
"""(which of five sequences, tokens it shall hold; 0 gives everything back)."""


@settings(max_examples=200, deadline=None)
@given(num_pages=st.integers(0, 12), page_size=st.integers(1, 7), actions=ACTIONS)
def test_pages_are_lent_to_one_at_a_time_and_none_is_lost(num_pages, page_size, actions):
    allocator = PageAllocator(num_pages, page_size)
    held: list[list[int]] = [[] for _ in range(5)]
    for place, tokens in actions:
        pages = held[place]
        if tokens == 0:
            allocator.release(pages)
            assert pages == []
        else:
            need = max(0, -(-tokens // page_size) - len(pages))
            assert allocator.can_grow(pages, tokens) == (need <= allocator.num_free)
            if allocator.can_grow(pages, tokens):
                before = list(pages)
                allocator.grow(pages, tokens)
                assert pages[: len(before)] == before, "pages that are held stay where they are"
                assert len(pages) * page_size >= tokens
                assert len(pages) == len(before) + need
        lent = [page for pages in held for page in pages]
        assert len(set(lent)) == len(lent)
        assert set(lent) <= set(range(num_pages))
        assert allocator.num_free == num_pages - len(lent)


@settings(max_examples=100, deadline=None)
@given(page_size=st.integers(1, 17), tokens=st.integers(1, 100), data=st.data())
def test_slots_of_a_sequence_are_distinct_and_follow_its_pages(page_size, tokens, data):
    allocator = PageAllocator(120, page_size)
    pages: list[int] = []
    allocator.grow(pages, tokens)
    slots = list(allocator.slots(pages, 0, tokens))
    assert len(set(slots)) == tokens
    for token, slot in enumerate(slots):
        assert divmod(slot, page_size) == (pages[token // page_size], token % page_size)
    start = data.draw(st.integers(0, tokens))
    end = data.draw(st.integers(start, tokens))
    assert list(allocator.slots(pages, start, end)) == slots[start:end]


def test_the_longest_free_page_is_lent_first():
    allocator = PageAllocator(3, 4)
    first: list[int] = []
    second: list[int] = []
    allocator.grow(first, 4)
    allocator.grow(second, 4)
    freed = first[0]
    allocator.release(first)
    allocator.grow(second, 12)
    assert second[-1] == freed, "a page that was just freed comes last"


def test_giving_back_twice_is_a_defect():
    allocator = PageAllocator(3, 4)
    pages: list[int] = []
    allocator.grow(pages, 9)
    again = list(pages)
    allocator.release(pages)
    with pytest.raises(KeyError):
        allocator.release(again)


def test_growing_without_room_is_a_defect():
    with pytest.raises(AssertionError, match="grow without can_grow"):
        PageAllocator(1, 4).grow([], 5)
