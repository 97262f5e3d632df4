"""Whatever comes and goes, each request gets what it gets alone, and in the end everything is given back."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from day0.runtime.batch import Request, SamplingParams, TokenOutput
from day0.runtime.engine.engine import Engine

END = 7


@dataclass(frozen=True)
class Arrival:
    step: int
    prompt: tuple[int, ...]
    max_tokens: int
    abort_after: int | None
    ignore_eos: bool


@dataclass(frozen=True)
class Load:
    num_pages: int
    page_size: int
    seats: int
    budget: int
    snapshots: int | None
    watermark: float
    arrivals: tuple[Arrival, ...]


@st.composite
def loads(draw: st.DrawFn) -> Load:
    page_size, num_pages = draw(st.integers(1, 5)), draw(st.integers(2, 12))
    room = page_size * num_pages
    base = draw(st.lists(st.integers(0, 100), min_size=room, max_size=room))
    arrivals = []
    for _ in range(draw(st.integers(1, 9))):
        length = draw(st.integers(1, room - 1))
        own = draw(st.lists(st.integers(0, 100), min_size=length, max_size=length))
        arrivals.append(
            Arrival(
                step=draw(st.integers(0, 12)),
                prompt=(*base[: draw(st.integers(0, length))], *own)[:length],
                max_tokens=draw(st.integers(1, room - length)),
                abort_after=draw(st.none() | st.integers(0, 15)),
                ignore_eos=draw(st.booleans()),
            )
        )
    return Load(
        num_pages,
        page_size,
        seats=draw(st.integers(1, 5)),
        budget=draw(st.integers(1, 20)),
        snapshots=draw(st.none() | st.integers(0, 4)),
        watermark=draw(st.sampled_from((0.0, 0.2))),
        arrivals=tuple(arrivals),
    )


def check_books(engine: Engine, load: Load) -> None:
    """Pages and state slots belong to one running sequence each, and every token it holds has a place."""
    running, waiting = engine.scheduler.running, engine.scheduler.waiting
    assert len(running) <= load.seats
    lent = [page for sequence in running for page in sequence.held.pages]
    if engine.cache.snapshots is None:
        assert len(set(lent)) == len(lent)
    assert engine.cache.pages.num_free == load.num_pages - len(set(lent))
    slots = [sequence.held.state_slot for sequence in running]
    assert len(set(slots)) == len(slots)
    assert engine.cache.slots.num_free == load.seats - len(slots)
    for sequence in running:
        assert 0 <= sequence.computed <= len(sequence.token_ids) <= engine.max_model_len
        assert sequence.computed <= sequence.held.capacity
        written = sequence.held.pages[sequence.computed // load.page_size :]
        assert all(lent.count(page) == 1 for page in written), "what is still written is shared"
    for sequence in waiting:
        assert (sequence.lease, sequence.computed) == (None, 0)
    stats = engine.stats()
    assert (stats.running, stats.waiting) == (len(running), len(waiting))
    if engine.cache.snapshots is not None:
        assert engine.cache.snapshots.nbytes <= engine.cache.snapshots.budget


def drive(engine: Engine, load: Load) -> tuple[dict[str, list[TokenOutput]], set[str]]:
    """Run a load to its end; gives every request's outputs and the requests that were aborted."""
    outputs: dict[str, list[TokenOutput]] = {str(i): [] for i in range(len(load.arrivals))}
    to_come = sorted(range(len(load.arrivals)), key=lambda i: load.arrivals[i].step)
    added: dict[str, int] = {}
    aborted: set[str] = set()
    step = 0
    while to_come or engine.has_work():
        while to_come and load.arrivals[to_come[0]].step <= step:
            arrival, name = load.arrivals[to_come[0]], str(to_come[0])
            params = SamplingParams(max_tokens=arrival.max_tokens, ignore_eos=arrival.ignore_eos)
            engine.add(Request(name, arrival.prompt, params))
            added[name] = step
            to_come.pop(0)
        for name, since in added.items():
            patience = load.arrivals[int(name)].abort_after
            if patience is not None and step == since + patience and engine.abort(name):
                aborted.add(name)
                check_books(engine, load)
        for output in engine.step():
            assert output.request_id not in aborted
            outputs[output.request_id].append(output)
        check_books(engine, load)
        step += 1
        assert step < 5000, "no end in sight"
    return outputs, aborted


@settings(max_examples=120, deadline=None, derandomize=True)
@given(load=loads())
def test_each_gets_what_it_gets_alone(chain_engine, chain_continuation, load: Load) -> None:
    engine = chain_engine(
        load.num_pages,
        load.page_size,
        load.seats,
        load.budget,
        snapshots=load.snapshots,
        watermark=load.watermark,
    )
    outputs, aborted = drive(engine, load)
    for index, arrival in enumerate(load.arrivals):
        stops = frozenset() if arrival.ignore_eos else frozenset((END,))
        wanted = chain_continuation(arrival.prompt, arrival.max_tokens, stops)
        found = outputs[str(index)]
        tokens = [output.token_id for output in found]
        if str(index) in aborted:
            assert tokens == wanted[: len(tokens)]
            assert all(output.finish_reason is None for output in found)
            continue
        assert tokens == wanted
        assert [output.finish_reason for output in found[:-1]] == [None] * (len(found) - 1)
        assert found[-1].finish_reason == ("stop" if tokens[-1] in stops else "length")
    stats = engine.stats()
    assert (stats.pages_free, stats.state_slots_free) == (load.num_pages, load.seats)
    assert (stats.running, stats.waiting) == (0, 0)
    assert stats.generated_tokens == sum(len(found) for found in outputs.values())
    assert stats.steps == len(engine.model.steps)


def test_pages_run_out_and_the_latest_comer_waits_again(chain_engine, chain_continuation) -> None:
    # Three sequences of 4 + 12 tokens want 12 pages of 4; there are 7.
    engine = chain_engine(num_pages=7, page_size=4, seats=3, budget=64)
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    prompts = [(1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11, 12)]
    completions = engine.generate([Request(str(i), prompt, params) for i, prompt in enumerate(prompts)])
    assert engine.stats().preemptions >= 1
    for prompt, completion in zip(prompts, completions, strict=True):
        assert list(completion.token_ids) == chain_continuation(prompt, 12)


def test_the_first_comer_is_never_preempted(chain_engine) -> None:
    engine = chain_engine(num_pages=6, page_size=2, seats=3, budget=64)
    params = SamplingParams(max_tokens=8, ignore_eos=True)
    for name in "abc":
        engine.add(Request(name, (1, 2, 3, 4), params))
    order: list[str] = []
    while engine.has_work():
        for output in engine.step():
            if output.finish_reason is not None:
                order.append(output.request_id)
    assert engine.stats().preemptions > 0
    assert order == ["a", "b", "c"]


def test_decoding_goes_on_while_a_long_prompt_is_read(chain_engine) -> None:
    engine = chain_engine(num_pages=64, page_size=4, seats=4, budget=10)
    engine.add(Request("chatting", (1, 2), SamplingParams(max_tokens=40, ignore_eos=True)))
    engine.step()
    engine.add(Request("long", tuple(range(90)), SamplingParams(max_tokens=1)))
    for _ in range(5):
        assert [output.request_id for output in engine.step()] == ["chatting"]
    assert engine.model.steps[1:] == [10] * 5, "the rest of each step goes to the long prompt"


def test_a_step_with_nothing_to_do_does_nothing(chain_engine) -> None:
    engine = chain_engine(4, 4, 2, 8)
    assert engine.step() == []
    assert engine.stats().steps == 0


def test_a_state_that_is_not_reset_is_noticed(chain_engine, monkeypatch) -> None:
    engine = chain_engine(num_pages=8, page_size=2, seats=1, budget=8)
    monkeypatch.setattr(engine.cache.storage, "reset_state", lambda slot: None)
    with pytest.raises(AssertionError, match="a state was read that nobody set"):
        engine.generate([Request("a", (1, 2, 3), SamplingParams(max_tokens=5))])


def test_a_stale_state_is_noticed_without_debug(chain_engine, chain_continuation, monkeypatch) -> None:
    engine = chain_engine(num_pages=8, page_size=7, seats=1, budget=8)
    engine.cache.debug = False
    params = SamplingParams(max_tokens=5, ignore_eos=True)
    engine.generate([Request("a", (1, 2, 3), params)])
    monkeypatch.setattr(engine.cache.storage, "reset_state", lambda slot: None)
    second = engine.generate([Request("b", (1, 2, 3), params)])[0]
    assert list(second.token_ids) != chain_continuation((1, 2, 3), 5)


def test_a_page_lent_to_two_is_noticed(chain_engine, chain_continuation) -> None:
    engine = chain_engine(num_pages=8, page_size=7, seats=2, budget=8)
    params = SamplingParams(max_tokens=9, ignore_eos=True)
    engine.add(Request("a", (1, 2, 3), params))
    engine.add(Request("b", (4, 5), params))
    engine.step()
    first, second = engine.scheduler.running
    second.lease = first.lease
    tokens = [output.token_id for _ in range(3) for output in engine.step() if output.request_id == "a"]
    assert tokens != chain_continuation((1, 2, 3), 9)[1:4]
