from __future__ import annotations

import pytest
import torch

from day0.runtime.batch import ForwardBatch, ImageSpan, Request
from day0.runtime.engine.runner import Runner
from day0.runtime.engine.scheduler import Chunk
from day0.runtime.engine.sequence import Sequence


@pytest.fixture
def runner(chain_engine) -> Runner:
    return chain_engine(num_pages=10, page_size=4, seats=4, budget=64).runner


def lend(runner: Runner, name: str, length: int, computed: int, images: tuple[ImageSpan, ...] = ()) -> Sequence:
    one = Sequence.of(Request(name, tuple(range(100, 100 + length)), images=images), 4)
    one.lease = runner.cache.open()
    runner.cache.grow(one.lease, length)
    one.computed = computed
    return one


def batch(runner: Runner, *chunks: Chunk, every_row: bool = False) -> ForwardBatch:
    return runner._batch(list(chunks), every_row, None)


def test_decoding_sequences_make_one_group_and_each_prompt_its_own(runner: Runner) -> None:
    a, b, c = lend(runner, "a", 6, 5), lend(runner, "b", 3, 2), lend(runner, "c", 9, 2)
    found = batch(runner, Chunk(a, 1), Chunk(b, 1), Chunk(c, 5))
    assert found.token_ids.tolist() == [105, 102, 102, 103, 104, 105, 106]
    assert found.positions.tolist() == [5, 2, 2, 3, 4, 5, 6]
    assert [(group.start, group.sequences, group.length, group.end) for group in found.groups] == [
        (0, 2, 1, 2),
        (2, 1, 5, 7),
    ]
    assert found.groups[0].context.tolist() == [5, 2]
    assert found.groups[0].state_slots.tolist() == [a.held.state_slot, b.held.state_slot]
    assert found.rows.tolist() == [0, 1], "c does not reach its end"
    assert found.num_tokens == 7


def test_slots_of_a_shorter_sequence_repeat_one_of_its_own(runner: Runner) -> None:
    a, b = lend(runner, "a", 6, 5), lend(runner, "b", 3, 2)
    group = batch(runner, Chunk(a, 1), Chunk(b, 1)).groups[0]
    own = [b.held.pages[0] * 4 + token for token in range(3)]
    assert group.kv_slots[1].tolist() == [*own, own[0], own[0], own[0]]
    assert group.kv_slots[0].tolist() == [a.held.pages[token // 4] * 4 + token % 4 for token in range(6)]


def test_every_row_can_be_wanted(runner: Runner) -> None:
    a, b = lend(runner, "a", 1, 0), lend(runner, "b", 5, 0)
    assert batch(runner, Chunk(a, 1), Chunk(b, 3), every_row=True).rows.tolist() == [0, 1, 2, 3]
    assert batch(runner, Chunk(a, 1), Chunk(b, 5)).rows.tolist() == [0, 5]


def test_long_chunks_before_short_ones_are_a_defect(runner: Runner) -> None:
    a, b = lend(runner, "a", 6, 5), lend(runner, "b", 5, 0)
    with pytest.raises(AssertionError, match="come first"):
        batch(runner, Chunk(b, 3), Chunk(a, 1))


@pytest.mark.parametrize(
    ("start", "length", "rows", "taken"),
    [
        (0, 10, [3, 4, 5, 6], [0, 1, 2, 3]),
        (0, 4, [3], [0]),
        (4, 2, [0, 1], [1, 2]),
        (5, 5, [0, 1], [2, 3]),
        (0, 3, None, None),
        (7, 3, None, None),
    ],
)
def test_an_image_falls_into_the_chunks_it_lies_in(runner: Runner, start, length, rows, taken) -> None:
    embeddings = torch.arange(4.0)[:, None]
    one = lend(runner, "a", 10, start, (ImageSpan(3, embeddings),))
    single = lend(runner, "b", 3, 2)
    found = batch(runner, Chunk(single, 1), Chunk(one, length))
    if rows is None:
        assert (found.image_rows, found.image_embeddings) == (None, None)
        return
    assert found.image_rows.tolist() == [row + 1 for row in rows], "behind the row of the other sequence"
    assert found.image_embeddings[:, 0].tolist() == taken
