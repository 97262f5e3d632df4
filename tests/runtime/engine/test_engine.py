from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from closeness import relative_error

from day0.errors import ExitCode, InputError
from day0.runtime.batch import Request, SamplingParams
from day0.runtime.cache.storage import page_bytes
from day0.runtime.engine.engine import Engine, NotFinite, QueueFull, RequestRefused
from day0.runtime.trace import Trace

PROMPT = tuple(range(40, 57))


@pytest.fixture(scope="module")
def engine(tiny_llama: Path, make_engine) -> Engine:
    return make_engine(tiny_llama, max_model_len=64, max_queue=3)


@pytest.fixture(autouse=True)
def nothing_is_left(engine: Engine):
    yield
    for name in [sequence.id for sequence in (*engine.scheduler.running, *engine.scheduler.waiting)]:
        engine.abort(name)
    stats = engine.stats()
    assert (stats.pages_free, stats.state_slots_free) == (stats.pages_total, stats.state_slots_total)


def request(name: str = "a", prompt: tuple[int, ...] = PROMPT, **params) -> Request:
    return Request(name, prompt, SamplingParams(**({"max_tokens": 5, "ignore_eos": True} | params)))


# Refusals.


def test_too_long_names_both_lengths_and_the_limit(engine: Engine) -> None:
    with pytest.raises(RequestRefused, match=r"17 tokens and asks for up to 48 more.* 64") as caught:
        engine.add(request(max_tokens=48))
    assert caught.value.exit_code == ExitCode.BAD_INPUT
    engine.add(request(max_tokens=47))


@pytest.mark.parametrize("bad", [-1, 320, 10**9])
def test_ids_outside_the_vocabulary(engine: Engine, bad: int) -> None:
    for prompt in ((bad,), (*PROMPT, bad)):
        with pytest.raises(RequestRefused, match=r"must be in 0\.\.319"):
            engine.add(request(prompt=prompt))
        with pytest.raises(RequestRefused, match=r"must be in 0\.\.319"):
            engine.forward(prompt)


def test_an_empty_prompt(engine: Engine) -> None:
    with pytest.raises(RequestRefused, match="is empty"):
        engine.add(request(prompt=()))
    with pytest.raises(RequestRefused, match="is empty"):
        engine.forward([])


def test_an_id_that_is_in_use(engine: Engine) -> None:
    engine.add(request("a"))
    with pytest.raises(RequestRefused, match="'a' is running already"):
        engine.add(request("a"))
    engine.abort("a")
    engine.add(request("a"))


def test_a_full_queue_is_the_environments_fault_and_passes(engine: Engine) -> None:
    for name in "abc":
        engine.add(request(name))
    with pytest.raises(QueueFull, match="3 requests are waiting, 3 of them this client's; the limit is 3") as caught:
        engine.add(request("d"))
    assert caught.value.exit_code == ExitCode.ENVIRONMENT
    engine.step()
    engine.add(request("d"))


@pytest.mark.parametrize("bad", [request("b", max_tokens=1000), request("b", prompt=(999,)), request("a")])
def test_a_refused_call_leaves_nothing_behind(engine: Engine, bad: Request) -> None:
    with pytest.raises(RequestRefused):
        engine.generate([request("a"), bad])
    assert not engine.has_work()
    assert engine.generate([request("a")])[0].finish_reason == "length"


# How a sequence ends.


def test_length(engine: Engine) -> None:
    completion = engine.generate([request(max_tokens=5)])[0]
    assert (len(completion.token_ids), completion.finish_reason) == (5, "length")


def test_the_limit_for_both_together_can_be_used_up(engine: Engine) -> None:
    completion = engine.generate([request(max_tokens=64 - len(PROMPT))])[0]
    assert (len(completion.token_ids), completion.finish_reason) == (47, "length")


def test_stop_token_is_the_last_token(engine: Engine) -> None:
    tokens = engine.generate([request(max_tokens=10)])[0].token_ids
    stop = tokens[4]
    ended = engine.generate([request(max_tokens=10, stop_token_ids=(stop, 3))])[0]
    assert ended.token_ids == tokens[: tokens.index(stop) + 1]
    assert ended.finish_reason == "stop"


def test_the_models_own_end_counts_unless_ignored(engine: Engine, monkeypatch) -> None:
    tokens = engine.generate([request(max_tokens=10)])[0].token_ids
    monkeypatch.setattr(engine.model, "profile", replace(engine.profile, eos_token_ids=(tokens[3],)))
    ended = engine.generate([request(max_tokens=10, ignore_eos=False)])[0]
    assert (ended.token_ids, ended.finish_reason) == (tokens[: tokens.index(tokens[3]) + 1], "stop")
    assert engine.generate([request(max_tokens=10, ignore_eos=True)])[0].token_ids == tokens
    both = engine.generate([request(max_tokens=tokens.index(tokens[3]) + 1, ignore_eos=False)])[0]
    assert both.finish_reason == "stop", "an end at the very last token is an end"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_numbers_that_are_not_finite_end_their_own_request_only(
    engine: Engine, monkeypatch, value: float, temperature: float
) -> None:
    alone = engine.generate([request("sound", temperature=temperature, seed=1)])[0].token_ids
    spoilt = engine.model.embed.weight.clone()
    spoilt[7] = value
    monkeypatch.setattr(engine.model.embed.weight, "data", spoilt)
    bad = request("bad", (7, 8), temperature=temperature)
    engine.add(bad)
    engine.add(request("sound", temperature=temperature, seed=1))
    outputs = [output for _ in range(5) for output in engine.step()]
    assert [output.finish_reason for output in outputs if output.request_id == "bad"] == ["error"]
    assert tuple(output.token_id for output in outputs if output.request_id == "sound") == alone
    with pytest.raises(NotFinite, match="not finite"):
        engine.generate([request("sound"), bad])
    assert not engine.has_work()


# Aborts.


def test_abort_frees_at_once(engine: Engine) -> None:
    engine.add(request("a", max_tokens=40))
    engine.add(request("b", max_tokens=40))
    engine.step()
    held = engine.stats().pages_free
    assert engine.abort("a")
    assert engine.stats().pages_free > held
    assert {output.request_id for output in engine.step()} == {"b"}
    assert not engine.abort("a")
    assert not engine.abort("never there")


def test_a_waiting_request_can_be_aborted(engine: Engine) -> None:
    engine.add(request("a"))
    assert engine.abort("a")
    assert not engine.has_work()
    assert engine.step() == []


# Numbers.


def test_outputs_carry_log_probabilities_of_the_same_forward(engine: Engine) -> None:
    completion = engine.generate([request(max_tokens=4, logprobs=3)])[0]
    ids = [*PROMPT, *completion.token_ids]
    reference = torch.log_softmax(engine.forward(ids).double(), dim=-1)[len(PROMPT) - 1 : -1]
    for place, token in enumerate(completion.token_ids):
        assert completion.logprobs[place] == pytest.approx(float(reference[place, token]), abs=1e-4)
        best = reference[place].topk(3)
        assert [top.token_id for top in completion.top_logprobs[place]] == best.indices.tolist()
        assert token == best.indices[0]


def test_stats_count_tokens_and_steps(engine: Engine) -> None:
    before = engine.stats()
    engine.generate([request("a", max_tokens=3), request("b", max_tokens=6, prompt=PROMPT[:5])])
    after = engine.stats()
    assert after.prompt_tokens - before.prompt_tokens == 17 + 5
    assert after.generated_tokens - before.generated_tokens == 9
    assert after.steps - before.steps == 6


def test_forward_borrows_and_gives_back_even_when_it_fails(engine: Engine, monkeypatch) -> None:
    free = engine.stats().pages_free
    monkeypatch.setattr(engine.model, "_head", lambda *a: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        engine.forward(PROMPT)
    assert engine.stats().pages_free == free


def test_forward_beside_running_requests(engine: Engine) -> None:
    alone = engine.forward(PROMPT)
    tokens = engine.generate([request(max_tokens=20)])[0].token_ids
    engine.add(request("a", max_tokens=20))
    found = []
    while engine.has_work():
        assert torch.equal(engine.forward(PROMPT), alone)
        found += [output.token_id for output in engine.step()]
    assert tuple(found) == tokens


def test_forward_without_room_is_refused(engine: Engine) -> None:
    too_many = [0] * (engine.cache.capacity + 1)
    with pytest.raises(RequestRefused, match="no room in the cache"):
        engine.forward(too_many)


def test_a_trace_is_of_a_whole_forward(engine: Engine) -> None:
    with pytest.raises(AssertionError, match="trace a whole forward"):
        engine.forward(PROMPT, trace=Trace(), chunk=4)


def test_a_trace_changes_nothing(engine: Engine) -> None:
    kept = Trace()
    assert torch.equal(engine.forward(PROMPT, trace=kept), engine.forward(PROMPT))
    assert torch.equal(kept.tensors["logits"], engine.forward(PROMPT))


def test_settings_decide_the_length_limit(tiny_llama: Path, make_engine) -> None:
    assert make_engine(tiny_llama).max_model_len == 512
    assert make_engine(tiny_llama, max_model_len=33).max_model_len == 33
    with pytest.raises(InputError, match="beyond the model's own limit of 512"):
        make_engine(tiny_llama, max_model_len=513)


def test_page_size_changes_no_number(tiny_llama: Path, make_engine, engine: Engine) -> None:
    for page_size in (1, 3, 64):
        other = make_engine(tiny_llama, page_size=page_size)
        assert relative_error(other.forward(PROMPT, chunk=5), engine.forward(PROMPT)) < 1e-6


def test_a_preempted_prompt_is_counted_once(tiny_llama: Path, make_engine) -> None:
    room = page_bytes(make_engine(tiny_llama).profile.layers, 16, torch.float32) * 6
    tight = make_engine(tiny_llama, max_model_len=64, kv_cache_bytes=room)
    prompts = [tuple(range(start, start + 30)) for start in (1, 41, 81)]
    tight.generate([request(str(index), prompt, max_tokens=30) for index, prompt in enumerate(prompts)])
    assert tight.stats().preemptions > 0
    assert tight.stats().prompt_tokens == 90
