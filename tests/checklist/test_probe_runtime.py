"""The in-process target: starts once, asks in order, and cleans up after what it gives up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from day0.checklist.checklist import CheckSpec
from day0.checklist.probe_paths import engine_of, sibling
from day0.checklist.probe_runtime import EngineClient, RuntimeTarget, tokenizer_of
from day0.checklist.prompts import prompt_ids, random_ids, sentence_ids
from day0.checklist.target import Ask, CheckContext
from day0.errors import EnvironmentFault, InputError
from day0.plan.settings import EngineSettings
from day0.source.resolve import resolve


def test_answers_come_in_order_and_hold_their_facts(llama: CheckContext) -> None:
    prompts = [sentence_ids(llama, index) for index in range(3)]
    answers = llama.target.ask([Ask(prompt, 3 + index) for index, prompt in enumerate(prompts)], concurrency=3)
    for index, answer in enumerate(answers):
        assert answer.fate == "done" and answer.finish_reason == "length"
        assert len(answer.token_ids or ()) == answer.completion_tokens == len(answer.arrivals) == 3 + index
        assert answer.prompt_tokens == len(prompts[index])
        assert list(answer.arrivals) == sorted(answer.arrivals)


def test_concurrency_changes_no_answer(llama: CheckContext) -> None:
    asks = [Ask(sentence_ids(llama, index), 6) for index in range(5)]
    one = llama.target.ask(asks, concurrency=1)
    five = llama.target.ask(asks, concurrency=5)
    assert [answer.token_ids for answer in one] == [answer.token_ids for answer in five]


def test_too_long_is_refused_with_both_lengths(llama: CheckContext) -> None:
    limit = llama.target.max_model_len() or 0
    (answer,) = llama.target.ask([Ask(prompt_ids(llama, 0, limit), 5)], concurrency=1)
    assert answer.fate == "refused" and str(limit) in answer.message


def test_a_full_queue_is_overload(llama: CheckContext) -> None:
    engine = engine_of(llama)
    small = sibling(engine, replace(engine.settings, max_num_seqs=1, max_queue=1))
    answers = EngineClient(small, None).ask([Ask((1, 2, 3), 2) for _ in range(5)], concurrency=5)
    assert {answer.fate for answer in answers} == {"done", "overloaded"}


def test_abandoning_frees_everything(llama: CheckContext) -> None:
    engine = engine_of(llama)
    (answer,) = llama.target.ask([Ask(sentence_ids(llama, 0), 20, stream=True, abandon_after=3)], concurrency=1)
    assert (answer.finish_reason, len(answer.token_ids or ())) == ("abort", 3)
    stats = engine.stats()
    assert stats.pages_free == stats.pages_total and stats.running == 0


def test_what_is_under_way_is_aborted_when_a_step_raises(llama: CheckContext, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(llama)

    def step() -> list[object]:
        raise RuntimeError("boom")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "step", step)
        with pytest.raises(RuntimeError, match="boom"):
            llama.target.ask([Ask((1, 2, 3), 2)] * 3, concurrency=3)
    assert not engine.has_work()


def test_an_engine_that_gets_nowhere_is_noticed(llama: CheckContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_of(llama), "step", list)
    with pytest.raises(EnvironmentFault, match="no token in"):
        llama.target.ask([Ask((1, 2, 3), 2)], concurrency=1)


def test_a_stop_text_is_cut_off_and_ends_the_request(llama: CheckContext) -> None:
    ask = Ask(sentence_ids(llama, 0), 24)
    (plain,) = llama.target.ask([ask], concurrency=1)
    piece = next(char for char in plain.text[1:] if char.isprintable() and char != "\N{REPLACEMENT CHARACTER}")
    (stopped,) = llama.target.ask([replace(ask, stop=(piece,))], concurrency=1)
    assert stopped.finish_reason == "stop"
    assert stopped.text == plain.text[: plain.text.index(piece)]
    assert not engine_of(llama).has_work()


def test_a_start_that_failed_is_not_tried_again(tiny_llama: Path, llama: CheckContext) -> None:
    tensors = dict(llama.files.tensors or {})
    tensors.popitem()
    files = replace(llama.files, tensors=tensors)
    attempts: list[str] = []
    target = RuntimeTarget(files, llama.profile, EngineSettings(device="cpu"), None, lambda *seen: attempts.append("x"))
    for _ in range(2):
        with pytest.raises(InputError, match="lacks"):
            target.engine()
    assert target.lacks("engine") and "did not start" in str(target.lacks("engine"))
    assert target.lacks("process") is None
    assert attempts == []


def test_start_facts_hold_the_phases(llama: CheckContext) -> None:
    assert isinstance(llama.target, RuntimeTarget)
    llama.target.engine()
    facts = llama.target.start_facts
    assert facts is not None and set(facts.seconds) == {"load", "allocate", "warmup"}


def test_no_tokenizer_files_is_not_a_fault(tiny_llama: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors.index.json"):
        (tmp_path / name).write_bytes((tiny_llama / name).read_bytes())
    for shard in tiny_llama.glob("*.safetensors"):
        (tmp_path / shard.name).symlink_to(shard)
    assert tokenizer_of(resolve(str(tmp_path))) == (None, None)
    (tmp_path / "tokenizer.json").write_text("{broken")
    tokenizer, fault = tokenizer_of(resolve(str(tmp_path)))
    assert tokenizer is None and fault is not None and "tokenizer" in fault


def test_a_broken_tokenizer_fails_its_check(llama: CheckContext) -> None:
    from day0.checklist.checklist import Checklist, ChecklistRun
    from day0.checklist.probe_table import PROBES

    target = RuntimeTarget(llama.files, llama.profile, EngineSettings(device="cpu"), None)
    context = replace(llama, target=target, tokenizer_fault="tokenizer.json: broken")
    spec = CheckSpec("s", "startup", "t", "startup.tokenizer", limits={"ids_beyond_embedding": {"max": 0}})
    run = ChecklistRun(Checklist("c", "c", (spec,)), PROBES, context, lacks=target.lacks)
    run.run()
    assert run.results["s"].status == "fail" and "tokenizer.json: broken" in run.results["s"].message


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 200])
def test_prompts_have_the_length_asked_for(llama: CheckContext, length: int) -> None:
    ids = prompt_ids(llama, 3, length)
    assert len(ids) == length and max(ids) < llama.profile.vocab_size


def test_prompts_differ_by_index_and_repeat_by_seed(llama: CheckContext) -> None:
    assert len({sentence_ids(llama, index) for index in range(40)}) == 40
    assert len({random_ids(llama, index, 8) for index in range(40)}) == 40
    assert random_ids(llama, 1, 8) == random_ids(llama, 1, 8)
    assert random_ids(replace(llama, seed=1), 1, 8) != random_ids(llama, 1, 8)


def test_random_ids_leave_out_control_tokens(kimi_k3: CheckContext) -> None:
    profile = kimi_k3.profile
    assert profile.vision is not None
    ids = set(random_ids(kimi_k3, 0, 5000))
    assert not ids & {profile.vision.placeholder_token_id, profile.bos_token_id, *profile.eos_token_ids}
