import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from day0.runtime.cache.pages import PageAllocator, token_slots


class Pages(RuleBasedStateMachine):
    """Pages against what is said of them: holders counted by hand, idle pages in a list, the last let go at its end."""

    @initialize(num_pages=st.integers(0, 9))
    def start(self, num_pages: int) -> None:
        self.allocator = PageAllocator(num_pages, 4)
        self.held: list[list[int]] = [[] for _ in range(4)]
        self.names: dict[int, bytes] = {}
        self.idle: list[int] = []
        self.given_up = [0] * num_pages

    def holders(self, page: int) -> int:
        return sum(pages.count(page) for pages in self.held)

    @rule(place=st.integers(0, 3), count=st.integers(1, 4))
    def take(self, place: int, count: int) -> None:
        if count > self.allocator.num_free:
            with pytest.raises(AssertionError, match="can be lent"):
                self.allocator.take(count)
            return
        needed = max(0, count - (self.allocator.num_free - len(self.idle)))
        wanted_lost = [self.names[page] for page in self.idle[:needed]]
        pages, lost = self.allocator.take(count)
        assert lost == wanted_lost, "those let go longest ago, and only where no page is free"
        for page in self.idle[:needed]:
            del self.names[page]
            self.given_up[page] += 1
        del self.idle[:needed]
        assert len(set(pages)) == count and not any(self.holders(page) or page in self.idle for page in pages)
        self.held[place] += pages

    @rule(place=st.integers(0, 3))
    def release(self, place: int) -> None:
        pages, self.held[place] = self.held[place], []
        given_up = self.allocator.release(pages)
        gone = [page for page in reversed(pages) if not self.holders(page)]
        assert given_up == [page for page in gone if page not in self.names]
        for page in given_up:
            self.given_up[page] += 1
        self.idle += [page for page in gone if page in self.names]

    @rule(place=st.integers(0, 3), at=st.integers(0, 5), letter=st.sampled_from(b"abcdef"))
    def name(self, place: int, at: int, letter: int) -> None:
        unnamed = [page for page in self.held[place] if page not in self.names]
        if at < len(unnamed):
            self.allocator.name(unnamed[at], bytes([letter]))
            if bytes([letter]) not in self.names.values():
                self.names[unnamed[at]] = bytes([letter])

    @rule(place=st.integers(0, 3), letter=st.sampled_from(b"abcdef"))
    def share(self, place: int, letter: int) -> None:
        page = self.allocator.find(bytes([letter]))
        assert page == next((page for page, name in self.names.items() if name == bytes([letter])), None)
        if page is not None and page not in self.held[place]:
            self.allocator.hold([page])
            self.held[place].append(page)
            if page in self.idle:
                self.idle.remove(page)

    @rule(place=st.integers(0, 3))
    def forget(self, place: int) -> None:
        wanted = {self.names.pop(page) for page in self.held[place] if page in self.names}
        assert set(self.allocator.forget(self.held[place])) == wanted

    @invariant()
    def books_agree(self) -> None:
        if not hasattr(self, "allocator"):
            return
        held = {page for pages in self.held for page in pages}
        assert self.allocator.num_free == self.allocator.num_pages - len(held)
        assert self.allocator.num_idle == len(self.idle)
        assert all(self.allocator.is_idle(page) for page in self.idle)
        assert self.allocator.generations == self.given_up


TestPages = Pages.TestCase
TestPages.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)


@settings(max_examples=60, deadline=None)
@given(page_size=st.integers(1, 17), pages=st.lists(st.integers(0, 99), max_size=8, unique=True))
def test_slots_follow_the_pages(page_size: int, pages: list[int]) -> None:
    found = token_slots(pages, page_size)
    assert found.tolist() == [pages[t // page_size] * page_size + t % page_size for t in range(len(pages) * page_size)]


def test_nobody_lets_go_twice() -> None:
    allocator = PageAllocator(4, 4)
    pages, _ = allocator.take(2)
    allocator.release(pages)
    with pytest.raises(KeyError):
        allocator.release(pages)


def test_the_longest_free_page_comes_first() -> None:
    allocator = PageAllocator(3, 4)
    first, _ = allocator.take(2)
    allocator.release(first)
    assert allocator.take(3)[0] == [2, 1, 0], "so that a read of freed memory is found late, not overwritten early"


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (3, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_pages_for(tokens: int, pages: int) -> None:
    assert PageAllocator(9, 4).pages_for(tokens) == pages
