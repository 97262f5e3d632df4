"""A real hybrid model under a mixed load in a tight cache, freed memory poisoned: each request as if alone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from closeness import relative_error

from day0.runtime.batch import Request, SamplingParams
from day0.runtime.cache.lease import StaleLease
from day0.runtime.engine.engine import Engine

PAGE = 4


def requests(count: int) -> list[Request]:
    """Prompts of odd lengths; every second one is sampled."""
    generator = random.Random(3)
    made = []
    for number in range(count):
        prompt = tuple(generator.randrange(256) for _ in range((17, 16, 1, 40, 3, 31)[number]))
        params = SamplingParams(
            max_tokens=generator.randrange(10, 16),
            temperature=1.0 if number % 2 else 0.0,
            seed=number,
            top_p=0.9,
            ignore_eos=True,
        )
        made.append(Request(f"r{number}", prompt, params))
    return made


def tight_engine(folder: Path, make_engine, pages: int, **settings) -> Engine:
    probe: Engine = make_engine(folder, page_size=PAGE, max_num_seqs=1, max_model_len=PAGE)
    per_page = probe.memory.kv_bytes // probe.memory.num_pages
    return make_engine(
        folder,
        **({"page_size": PAGE, "max_num_seqs": 6, "max_num_batched_tokens": 24, "debug": True} | settings),
        kv_cache_bytes=pages * per_page,
    )


@pytest.fixture(scope="module", params=["tiny_kimi_k3", "tiny_llama"])
def folder(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue(request.param)


def test_each_as_if_alone(folder: Path, make_engine) -> None:
    roomy: Engine = make_engine(folder, max_num_seqs=1)
    alone = [roomy.generate([one])[0] for one in requests(6)]
    tight = tight_engine(folder, make_engine, pages=15)
    together = tight.generate(requests(6))
    assert tight.stats().preemptions > 0, "the load must be tight enough to preempt"
    assert [c.token_ids for c in together] == [c.token_ids for c in alone]
    assert tight.stats().pages_free == 15
    # All the same again in the memory that was poisoned when it was freed.
    assert [c.token_ids for c in tight.generate(requests(6))] == [c.token_ids for c in alone]


def test_logits_after_a_load_are_those_of_a_fresh_engine(folder: Path, make_engine) -> None:
    ids = list(range(50))
    tight = tight_engine(folder, make_engine, pages=15)
    before = tight.forward(ids)
    tight.generate(requests(3))
    assert torch.equal(tight.forward(ids), before)
    assert relative_error(before, make_engine(folder).forward(ids)) < 1e-6


def test_a_state_that_is_not_reset_is_noticed(tiny_kimi_k3: Path, make_engine, monkeypatch) -> None:
    engine: Engine = make_engine(tiny_kimi_k3, max_num_seqs=1)
    ids = list(range(50))
    fresh = engine.forward(ids)
    engine.forward(ids[::-1])
    assert torch.equal(engine.forward(ids), fresh), "a slot that was used gives what a fresh one gives"
    monkeypatch.setattr(engine.cache.storage, "reset_state", lambda slot: None)
    assert relative_error(engine.forward(ids), fresh) > 1e-3


def test_in_debug_a_stale_state_is_not_a_number(tiny_kimi_k3: Path, make_engine, monkeypatch) -> None:
    engine: Engine = make_engine(tiny_kimi_k3, max_num_seqs=1, debug=True)
    engine.forward([1, 2, 3])
    monkeypatch.setattr(engine.cache.storage, "reset_state", lambda slot: None)
    assert engine.forward([1, 2, 3]).isnan().all()


def test_in_debug_a_freed_page_is_not_a_number(tiny_llama: Path, make_engine) -> None:
    engine: Engine = make_engine(tiny_llama, debug=True)
    engine.add(Request("a", tuple(range(40)), SamplingParams(max_tokens=20)))
    engine.step()
    engine.cache.storage.poison_pages(engine.scheduler.running[0].held.pages[1:2])
    logits = engine.runner.run(engine.scheduler.schedule())
    assert logits.isnan().all()
    engine.abort("a")


@pytest.mark.parametrize("kept", ["pages", "slot"])
def test_in_debug_a_lease_kept_by_a_detour_is_refused_before_the_step(tiny_kimi_k3: Path, make_engine, kept) -> None:
    engine: Engine = make_engine(tiny_kimi_k3, max_num_seqs=2, debug=True, prefix_caching=False)
    for name in "ab":
        engine.add(Request(name, tuple(range(20)), SamplingParams(max_tokens=20, ignore_eos=True)))
    engine.step()
    one, two = (sequence.held for sequence in engine.scheduler.running)
    if kept == "pages":
        two.pages, two.generations = list(one.pages), list(one.generations)
    else:
        two._state_slot, two.slot_generation = one.state_slot, one.slot_generation
    engine.abort("a")
    with pytest.raises(StaleLease, match="has changed hands"):
        engine.step()
