"""What the scheduler chooses, seen through its chunks; that the choice is safe is shown by test_any_load."""

from __future__ import annotations

import pytest

from day0.runtime.batch import Request, SamplingParams
from day0.runtime.engine.scheduler import Scheduler
from day0.runtime.engine.sequence import QueueFull, Sequence


@pytest.fixture
def scheduler(chain_engine) -> Scheduler:
    return chain_engine(num_pages=8, page_size=4, seats=3, budget=10, max_queue=4).scheduler


def sequence(name: str, length: int) -> Sequence:
    return Sequence.of(Request(name, tuple(range(length)), SamplingParams(max_tokens=4)), 4)


def step(scheduler: Scheduler) -> list[tuple[str, int]]:
    """Schedule, and book what a forward would have done: every chunk computed, a token for those at their end."""
    chunks = scheduler.schedule()
    chosen = [(chunk.sequence.id, chunk.length) for chunk in chunks]
    for chunk in chunks:
        ends = chunk.reaches_end
        chunk.sequence.computed += chunk.length
        if ends:
            chunk.sequence.token_ids.append(1)
    return chosen


def test_prompts_share_the_budget_in_order_of_arrival(scheduler: Scheduler) -> None:
    for name, length in (("a", 6), ("b", 7), ("c", 5)):
        scheduler.add(sequence(name, length))
    assert step(scheduler) == [("a", 6), ("b", 4)]
    assert step(scheduler) == [("a", 1), ("b", 3), ("c", 5)]
    assert step(scheduler) == [("a", 1), ("b", 1), ("c", 1)]


def test_chunks_of_one_token_come_first(scheduler: Scheduler) -> None:
    scheduler.add(sequence("long", 9))
    scheduler.add(sequence("one", 1))
    assert step(scheduler) == [("one", 1), ("long", 9)]


def test_no_more_than_the_seats(scheduler: Scheduler) -> None:
    for name in "abcd":
        scheduler.add(sequence(name, 2))
    assert [name for name, _ in step(scheduler)] == ["a", "b", "c"]
    scheduler.finish(scheduler.running[1], "stop")
    assert [name for name, _ in step(scheduler)] == ["a", "c", "d"]


def test_a_prompt_waits_until_all_of_it_has_room(scheduler: Scheduler) -> None:
    scheduler.add(sequence("a", 20))
    scheduler.add(sequence("b", 13))
    scheduler.add(sequence("c", 1))
    names = [name for _ in range(3) for name, _ in step(scheduler)]
    assert set(names) == {"a"}, "b has no room yet, and c does not overtake it"
    scheduler.finish(scheduler.running[0], "stop")
    assert [name for name, _ in step(scheduler)] == ["b"]


def test_the_latest_comer_gives_up_its_pages_and_keeps_its_tokens(scheduler: Scheduler) -> None:
    scheduler.add(sequence("a", 15))
    scheduler.add(sequence("b", 14))
    while scheduler.num_preemptions == 0:
        step(scheduler)
    (waiting,) = scheduler.waiting
    assert waiting.id == "b"
    assert (waiting.computed, waiting.lease) == (0, None)
    assert waiting.num_generated > 0
    assert [s.id for s in scheduler.running] == ["a"]
    scheduler.finish(scheduler.running[0], "length")
    assert step(scheduler)[0] == ("b", 10), "it starts over, generated tokens and all"


def test_the_queue_has_a_limit(scheduler: Scheduler) -> None:
    for name in "abcd":
        scheduler.add(sequence(name, 2))
    with pytest.raises(QueueFull, match="4 requests are waiting"):
        scheduler.add(sequence("e", 2))


def test_finish_takes_out_the_waiting_too(scheduler: Scheduler) -> None:
    waiting = sequence("a", 2)
    scheduler.add(waiting)
    scheduler.finish(waiting, "abort")
    assert (list(scheduler.waiting), waiting.finish_reason) == ([], "abort")


def test_a_new_sequence_leaves_the_watermark_free(chain_engine) -> None:
    scheduler: Scheduler = chain_engine(num_pages=10, page_size=4, seats=3, budget=64, watermark=0.2).scheduler
    scheduler.add(sequence("a", 28))
    scheduler.add(sequence("b", 5))
    assert [name for name, _ in step(scheduler)] == ["a"], "b would leave one page free, two are to be"
    scheduler.add(sequence("c", 40))
    scheduler.finish(scheduler.running[0], "stop")
    assert [name for name, _ in step(scheduler)] == ["b"]
    scheduler.finish(scheduler.running[0], "stop")
    assert [name for name, _ in step(scheduler)] == ["c"], "alone it may have all of them"


def test_nobody_is_let_in_where_somebody_had_to_go(scheduler: Scheduler) -> None:
    scheduler.add(sequence("a", 15))
    scheduler.add(sequence("b", 14))
    scheduler.add(sequence("c", 1))
    while scheduler.num_preemptions == 0:
        found = step(scheduler)
    assert found == [("a", 1)]
    assert [s.id for s in scheduler.waiting] == ["b", "c"], "though there is room for c"


def test_steps_end_at_stops(scheduler: Scheduler) -> None:
    one = sequence("a", 20)
    one.stops = (4, 16)
    lengths = []
    while one.num_pending:
        lengths.append(one.next_length(9))
        one.computed += lengths[-1]
    assert lengths == [4, 9, 3, 4]
