import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from day0.runtime.cache.prefix import ImageContent, PageNames, Snapshots
from day0.runtime.cache.storage import StateSnapshot

IDS = st.lists(st.integers(0, 2), max_size=12)


def names(ids: list[int], page_size: int, *images: ImageContent) -> list[bytes]:
    own = PageNames(page_size, images)
    return [own.name(ids, number) for number in range(len(ids) // page_size)]


@settings(max_examples=150, deadline=None)
@given(one=IDS, two=IDS, page_size=st.integers(1, 4))
def test_names_are_equal_as_long_as_all_tokens_before_are(one: list[int], two: list[int], page_size: int) -> None:
    for number, (a, b) in enumerate(zip(names(one, page_size), names(two, page_size), strict=False), start=1):
        assert (a == b) == (one[: number * page_size] == two[: number * page_size])
    own = names(one, page_size)
    assert len(set(own)) == len(own)


def test_names_go_on_where_they_were() -> None:
    growing, ids = PageNames(2), [1, 2, 3]
    early = growing.name(ids, 0)
    ids += [4, 5, 6]
    assert [growing.name(ids, 2), growing.name(ids, 1), early] == names(ids, 2)[::-1]


def test_images_are_named_from_their_first_token_on() -> None:
    ids = [9] * 12

    def with_image(start: int, end: int, digest: bytes) -> list[bytes]:
        return names(ids, 4, ImageContent(start, end, digest))

    one, two, moved, plain = with_image(5, 9, b"x"), with_image(5, 9, b"y"), with_image(6, 10, b"x"), names(ids, 4)
    for other in (two, moved, plain):
        assert one[0] == other[0]
        assert one[1] != other[1] and one[2] != other[2]
    assert with_image(4, 8, b"x")[1] != with_image(4, 8, b"y")[1]
    assert with_image(8, 12, b"x")[:2] == plain[:2], "an image changes nothing before it"


def snapshot(floats: int) -> StateSnapshot:
    return StateSnapshot((torch.zeros(floats),))


def test_snapshots_keep_to_their_budget_and_drop_what_was_used_longest_ago() -> None:
    kept = Snapshots(budget=12)
    for name in (b"a", b"b", b"c"):
        kept.put(name, snapshot(1))
    kept.get(b"a")
    kept.put(b"d", snapshot(1))
    assert [name in kept for name in (b"a", b"b", b"c", b"d")] == [True, False, True, True]
    kept.put(b"e", snapshot(4))
    assert b"e" not in kept and kept.nbytes == 12, "one that is too large drops nothing"
    kept.put(b"a", snapshot(2))
    assert b"c" not in kept and kept.nbytes == 12
    kept.drop(b"a")
    kept.drop(b"never there")
    assert kept.nbytes == 4
