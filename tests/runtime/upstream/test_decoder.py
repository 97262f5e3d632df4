"""Models of transformers through our engine: what they say is what transformers' generate says, however it is asked."""

from __future__ import annotations

import pytest
import torch
from upstream_models import VOCAB, greedy

from day0.runtime.batch import Request, SamplingParams
from day0.runtime.engine.engine import RequestRefused
from day0.runtime.trace import Trace
from day0.runtime.upstream.sessions import CacheUse

MODELS = ("gemma3_text", "gpt2", "jamba", "mamba2", "phi3")
PROMPTS = [[(5 * at + length) % 90 + 4 for at in range(length)] for length in (3, 14, 1, 22)]


def requests(**params):
    chosen = {"max_tokens": 12, "ignore_eos": True} | params
    return [Request(str(at), tuple(prompt), SamplingParams(**chosen)) for at, prompt in enumerate(PROMPTS)]


@pytest.mark.parametrize("name", MODELS)
def test_greedy_answers_in_a_batch_are_those_of_generate(name, made, engines) -> None:
    engine = engines(name)
    answers = [completion.token_ids for completion in engine.generate(requests())]
    assert answers == [greedy(made(name).model, prompt, 12) for prompt in PROMPTS]
    stats = engine.stats()
    assert (stats.pages_free, stats.state_slots_free) == (stats.pages_total, stats.state_slots_total)
    assert engine.cache.storage.bytes_held == 0


@pytest.mark.parametrize("name", MODELS)
def test_sampled_answers_in_a_batch_are_those_alone(name, engines) -> None:
    engine = engines(name)
    asked = requests(temperature=1.0, seed=5, logprobs=2)
    together = engine.generate(asked)
    for request, batched in zip(asked, together, strict=True):
        (alone,) = engine.generate([request])
        assert alone.token_ids == batched.token_ids
        assert alone.logprobs == pytest.approx(batched.logprobs, abs=1e-4)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "phi3"])
@pytest.mark.parametrize("chunk", [1, 4])
def test_portions_give_what_the_whole_gives(name, chunk, made, engines) -> None:
    engine, ids = engines(name), PROMPTS[-1]
    whole = made(name).model(torch.tensor([ids]), use_cache=False).logits[0]
    assert torch.allclose(engine.forward(ids, chunk=chunk), whole, rtol=1e-4, atol=1e-4 * float(whole.abs().max()))


def test_beyond_the_length_where_positions_rotate_anew_nothing_old_is_read(made, engines) -> None:
    engine, ids = engines("phi3"), PROMPTS[-1]
    short, long = engine.forward(ids[:16], chunk=5), engine.forward(ids, chunk=5)
    model = made("phi3").model
    torch.testing.assert_close(short, model(torch.tensor([ids[:16]])).logits[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(long[-6:], model(torch.tensor([ids])).logits[0, -6:], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(long[:16], model(torch.tensor([ids])).logits[0, :16], atol=1e-2), "the test sees nothing"


def test_an_aborted_request_leaves_nothing_and_changes_nothing(made, engines) -> None:
    engine = engines("jamba")
    first, second, *_ = requests()
    engine.add(first)
    engine.add(Request("gone", tuple(PROMPTS[3]), SamplingParams(max_tokens=30, ignore_eos=True)))
    engine.step()
    assert engine.abort("gone") and engine.abort(first.id)
    assert engine.cache.storage.bytes_held == 0 and not engine.has_work()
    (answer,) = engine.generate([second])
    assert answer.token_ids == greedy(made("jamba").model, PROMPTS[1], 12)


def test_a_preempted_request_goes_on_where_it_was(made, upstream) -> None:
    roomy, tight = (upstream(made("gemma3_text").folder, max_num_seqs=4, max_model_len=48, **more)
                    for more in ({}, {"kv_cache_bytes": 5 * 16 * 384}))  # fmt: skip
    asked = requests(max_tokens=24)
    answers = [completion.token_ids for completion in tight.generate(asked)]
    assert tight.stats().preemptions > 0
    assert answers == [completion.token_ids for completion in roomy.generate(asked)]


def test_a_stop_token_ends_an_answer(made, engines) -> None:
    said = greedy(made("gpt2").model, PROMPTS[0], 12)
    stop = said[4]
    params = SamplingParams(max_tokens=12, ignore_eos=True, stop_token_ids=(stop,))
    (answer,) = engines("gpt2").generate([Request("a", tuple(PROMPTS[0]), params)])
    assert answer.finish_reason == "stop"
    assert answer.token_ids == said[: said.index(stop) + 1]


def test_a_trace_has_the_parts_of_every_layer_and_the_logits(made, engines) -> None:
    trace, ids = Trace(), PROMPTS[1]
    logits = engines("gemma3_text").forward(ids, trace=trace)
    points = ("mixer_in", "mixer_out", "ffn_in", "ffn_out", "output")
    layers = {f"layers.{layer}.{point}" for layer in range(3) for point in points}
    assert set(trace.tensors) == layers | {"embed", "norm", "logits"}
    assert torch.equal(trace.tensors["logits"], logits)
    assert all(len(tensor) == len(ids) for tensor in trace.tensors.values())
    hidden = made("gemma3_text").model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    torch.testing.assert_close(trace.tensors["layers.1.output"], hidden[2][0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["gemma3_text", "jamba"])
def test_hooks_on_blocks_see_each_token_once_however_it_is_portioned(name, engines) -> None:
    engine, ids = engines(name), PROMPTS[1]
    seen: list[torch.Tensor] = []
    handle = engine.model.get_submodule("layers.1.ffn").register_forward_hook(lambda *call: seen.append(call[2]))
    try:
        engine.forward(ids)
        engine.forward(ids, chunk=4)
    finally:
        handle.remove()
    whole, *portions = seen
    assert whole.shape == (len(ids), 32)
    torch.testing.assert_close(torch.cat(portions), whole, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("use", list(CacheUse))
def test_every_use_of_the_cache_gives_the_same_numbers(use, made, upstream) -> None:
    engine, ids = upstream(made("gpt2").folder), PROMPTS[3]
    whole = engine.forward(ids)
    engine.model.cache_use = use
    torch.testing.assert_close(engine.forward(ids, chunk=5), whole, rtol=1e-4, atol=1e-4)
    (answer,) = engine.generate([Request("a", tuple(ids), SamplingParams(max_tokens=5, ignore_eos=True))])
    assert answer.token_ids == greedy(made("gpt2").model, ids, 5)


def test_the_vocabulary_and_the_context_are_held(made, engines) -> None:
    engine = engines("gpt2")
    assert (engine.profile.vocab_size, engine.max_model_len, engine.profile.eos_token_ids) == (VOCAB, 64, (2,))
    with pytest.raises(RequestRefused, match=r"token ids must be in 0\.\.95"):
        engine.add(Request("a", (VOCAB,)))
    with pytest.raises(RequestRefused, match="the limit for both together is 64"):
        engine.add(Request("a", (5,) * 60, SamplingParams(max_tokens=5)))
