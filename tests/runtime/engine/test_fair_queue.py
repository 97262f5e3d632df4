"""Who is let into the batch next, and who is turned away, where one client asks for much more than the others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from day0.runtime.batch import Request
from day0.runtime.engine.fair_queue import FairQueue
from day0.runtime.engine.sequence import QueueFull, Sequence


def waiting(client: str, name: str = "", length: int = 1) -> Sequence:
    return Sequence.of(Request(name, tuple(range(length)), client=client), 4)


def served(queue: FairQueue, times: int, tokens: int = 10) -> list[str]:
    order = []
    for _ in range(times):
        client = queue.pop().request.client
        queue.charge(client, tokens)
        order.append(client)
    return order


def test_a_client_with_a_hundred_requests_and_one_with_two_take_turns() -> None:
    queue = FairQueue(1000)
    for _ in range(100):
        queue.append(waiting("heavy"))
    for _ in range(2):
        queue.append(waiting("light"))
    assert served(queue, 5) == ["heavy", "light", "heavy", "light", "heavy"]
    assert len(queue) == 97


def test_tokens_count_and_not_requests() -> None:
    queue = FairQueue(1000)
    for _ in range(10):
        queue.append(waiting("long"))
        queue.append(waiting("short"))
    queue.charge("long", 35)
    assert served(queue, 5) == ["short"] * 4 + ["long"]


def test_who_was_away_has_saved_nothing_up() -> None:
    queue = FairQueue(1000)
    for _ in range(20):
        queue.append(waiting("steady"))
    served(queue, 10)
    for _ in range(10):
        queue.append(waiting("back"))
    assert served(queue, 6).count("back") == 3


def test_who_ran_already_comes_before_everybody() -> None:
    queue = FairQueue(10)
    queue.append(waiting("a"))
    queue.charge("b", 10**6)
    queue.put_back(waiting("b", "again"))
    assert queue.first() is queue.pop()
    assert [sequence.request.client for sequence in queue] == ["a"]


def test_a_full_queue_still_takes_who_has_less_than_a_share() -> None:
    queue = FairQueue(4)
    for _ in range(4):
        queue.check("heavy")
        queue.append(waiting("heavy"))
    with pytest.raises(QueueFull, match="4 requests are waiting, 4 of them"):
        queue.check("heavy")
    for client in ("light", "light", "other"):
        queue.check(client)
        queue.append(waiting(client))
    with pytest.raises(QueueFull):
        queue.check("light")
    queue.append(waiting("more"))
    with pytest.raises(QueueFull):
        queue.check("newcomer")  # twice the limit is all there is


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["in", "out", "drop", "back"])), max_size=60))
def test_nothing_is_lost_and_each_client_is_served_in_order(moves: list[tuple[str, str]]) -> None:
    queue, held, out = FairQueue(1000), [], {client: [] for client in "abc"}
    for number, (client, move) in enumerate(moves):
        if move == "in":
            held.append(waiting(client, f"{number:03}"))
            queue.append(held[-1])
        elif held and move == "drop":
            queue.remove(held.pop())
        elif held:
            first = queue.first()
            assert queue.pop() is first
            queue.charge(first.request.client, 7)
            if move == "back":
                queue.put_back(first)
            else:
                held.remove(first)
                out[first.request.client].append(first.id)
        assert len(queue) == len(held) and set(queue) == set(held)
    assert all(ids == sorted(ids) for ids in out.values())
    with pytest.raises(ValueError, match="does not wait"):
        queue.remove(waiting("a", "stranger"))
