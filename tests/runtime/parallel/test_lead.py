"""Two processes give what one gives: heads, experts, stages and sequences shared out, over models of every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from rank_models import Model, prompt, requests, settings

from day0.errors import InputError
from day0.runtime.batch import Request, SamplingParams
from day0.runtime.engine.lead import LeadingEngine, World, check_layout, start_engine

Check = Callable[..., LeadingEngine]
CUT, DEALT, STAGES, REPLICAS = {"tp": 2}, {"tp": 2, "ep": 2}, {"pp": 2}, {"dp": 2, "ep": 2}
CASES = [
    ("llama-3.1-8b", CUT),
    ("llama-3.1-8b", STAGES),
    ("llama-3.1-8b", {"dp": 2}),
    *(("qwen3-30b-a3b", layout) for layout in (CUT, DEALT, STAGES, REPLICAS)),
    *(("kimi-k3", layout) for layout in (DEALT, STAGES, REPLICAS)),
    ("deepseek-r1", STAGES),
    ("deepseek-r1", REPLICAS),
    ("kimi-k2-thinking", DEALT),
    *(("gpt_oss", layout) for layout in (CUT, DEALT, STAGES, REPLICAS)),
    ("mxfp4", CUT),
    ("deepseek-v4-pro", CUT),
    ("qwen3-next-80b-a3b", DEALT),
    *(("minimax_m3", layout) for layout in (CUT, DEALT, STAGES, REPLICAS)),
    ("nemotron_h", CUT),  # a group of the output norm for each rank
]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    started = World.start(2, "cpu")
    yield started
    started.stop()


@pytest.mark.parametrize(("name", "layout"), CASES, ids=lambda case: case if isinstance(case, str) else str(case))
def test_two_ranks_are_one(world: World, check: Check, name: str, layout: dict[str, int]) -> None:
    check(world, name, **layout)


def test_a_rank_reads_its_share_alone(world: World, check: Check, model_of: Callable[[str], Model]) -> None:
    """Rank 0 of two reads half of what is cut, and of all experts its half, groups and scales included."""
    whole = model_of("mxfp4").engine.load_report.bytes_read
    cut = check(world, "mxfp4", **CUT).load_report.bytes_read
    dealt = check(world, "mxfp4", **DEALT).load_report.bytes_read
    assert cut < 0.55 * whole
    assert dealt < 0.55 * whole


def test_what_is_cut_inside_a_group_is_refused(model_of: Callable[[str], Model]) -> None:
    model = model_of("kimi-k3")
    with pytest.raises(InputError, match=r"48 of 96 channels cannot be cut off between groups of 32 \(mxfp4\)"):
        check_layout(model.profile, settings(tp=2))


def test_a_norm_across_ranks_is_refused(model_of: Callable[[str], Model]) -> None:
    with pytest.raises(InputError, match="the output norm of 2 groups would lie across 4 ranks"):
        check_layout(model_of("nemotron_h").profile, settings(tp=4))


def test_what_runs_elsewhere_or_comes_and_goes_is_refused(model_of: Callable[[str], Model]) -> None:
    profile = model_of("llama-3.1-8b").profile
    with pytest.raises(InputError, match="not cut between ranks"):
        check_layout(profile, settings(tp=2, runtime="upstream"))
    with pytest.raises(InputError, match="do not come and go"):
        check_layout(profile, settings(tp=2, offload="disk"))


def test_replicas_take_turns_and_an_idle_one_serves_the_other(world: World, model_of: Callable[[str], Model]) -> None:
    """One long request keeps one replica busy while the other has nothing, and aborted ones give all back."""
    model = model_of("qwen3-30b-a3b")
    engine = world.load(model.files, model.profile, settings(**REPLICAS))
    alone = Request("long", tuple(prompt(20)), SamplingParams(12, ignore_eos=True))
    assert engine.generate([alone])[0].token_ids == model.engine.generate([alone])[0].token_ids
    for request in requests():
        engine.add(request)
    engine.step()
    assert engine.stats().running == 3
    assert engine.abort("r1")
    assert not engine.abort("r1")
    assert [done for done in _finish(engine) if done == "r1"] == []
    assert engine.stats().pages_free == engine.stats().pages_total
    engine.close()


def _finish(engine: LeadingEngine) -> list[str]:
    found: list[str] = []
    while engine.has_work():
        found += [output.request_id for output in engine.step()]
    return found


def test_other_settings_around_the_same_weights(world: World, model_of: Callable[[str], Model]) -> None:
    """A cache so small that sequences are put back gives the same tokens on both ranks."""
    model = model_of("llama-3.1-8b")
    engine = world.load(model.files, model.profile, settings(**CUT))
    page = engine.memory.kv_bytes // engine.memory.num_pages
    small = world.again(engine, replace(engine.settings, kv_cache_bytes=5 * page, max_model_len=48))
    growing = [Request(f"g{n}", tuple(prompt(15, n)), SamplingParams(20, ignore_eos=True)) for n in range(3)]
    wanted = [done.token_ids for done in model.engine.generate(growing)]
    assert [done.token_ids for done in small.generate(growing)] == wanted
    assert small.stats().preemptions > 0
    small.close()
    engine.close()


def test_a_model_that_no_rank_can_load_leaves_the_ranks_as_they_were(
    world: World, check: Check, model_of: Callable[[str], Model]
) -> None:
    model = model_of("llama-3.1-8b")
    with pytest.raises(InputError, match="room for"):
        world.load(model.files, model.profile, replace(settings(**CUT), kv_cache_bytes=1))
    check(world, "llama-3.1-8b", **CUT)


def test_one_rank_is_loaded_as_ever(model_of: Callable[[str], Model]) -> None:
    model = model_of("llama-3.1-8b")
    assert not isinstance(start_engine(model.files, model.profile, settings()), LeadingEngine)
