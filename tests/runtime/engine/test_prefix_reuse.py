"""What was computed before is found again, and nothing else: answers are those of an engine without a memory."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from closeness import relative_error

from day0.runtime.batch import Completion, ImageSpan, Request, SamplingParams
from day0.runtime.engine.engine import Engine, NotFinite

PAGE = 4
PROMPT = tuple(random.Random(5).choices(range(256), k=31))


def ask(engine: Engine, prompt: tuple[int, ...], name: str = "a", count: int = 6, **request) -> Completion:
    params = SamplingParams(max_tokens=count, logprobs=0, ignore_eos=True)
    return engine.generate([Request(name, prompt, params, **request)])[0]


@pytest.fixture(scope="module", params=["tiny_llama", "tiny_kimi_k3", "windowed"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param != "windowed":
        return request.getfixturevalue(request.param)
    copy = tmp_path_factory.mktemp("windowed") / "model"
    shutil.copytree(request.getfixturevalue("tiny_mixtral"), copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"sliding_window": 6}))
    return copy


@pytest.fixture
def engine(folder: Path, make_engine) -> Engine:
    return make_engine(folder, page_size=PAGE, max_model_len=96, debug=True)


@pytest.fixture(scope="module")
def without(folder: Path, make_engine) -> Engine:
    return make_engine(folder, page_size=PAGE, max_model_len=96, prefix_caching=False)


def has_states(engine: Engine) -> bool:
    return engine.cache.slots.num_slots > 0


def assert_same(found: Completion, wanted: Completion) -> None:
    assert found.token_ids == wanted.token_ids
    assert found.logprobs == pytest.approx(wanted.logprobs, abs=1e-4)


def test_the_same_prompt_again(engine: Engine, without: Engine) -> None:
    wanted = ask(without, PROMPT)
    first, second, third = (ask(engine, PROMPT) for _ in range(3))
    assert [answer.reused for answer in (first, second, third)] == [0, 28, 28], "the last token is always computed"
    for answer in (first, second, third):
        assert_same(answer, wanted)
    assert second.logprobs == third.logprobs, "bit for bit the same state, so the same numbers"
    if has_states(engine):  # its first run stopped at 28 to keep the state, and went on as the others did
        assert first.logprobs == second.logprobs
    stats = engine.stats()
    assert (stats.prompt_tokens, stats.reused_tokens) == (3 * 31, 2 * 28)
    assert (stats.pages_free, stats.state_slots_free) == (stats.pages_total, stats.state_slots_total)


@pytest.mark.parametrize("length", [PAGE - 1, PAGE, PAGE + 1, 2 * PAGE])
def test_lengths_about_a_page(engine: Engine, without: Engine, length: int) -> None:
    wanted = ask(without, PROMPT[:length])
    found = [ask(engine, PROMPT[:length]) for _ in range(2)]
    assert [answer.reused for answer in found] == [0, (length - 1) // PAGE * PAGE]
    for answer in found:
        assert_same(answer, wanted)


def test_prompts_that_part(engine: Engine, without: Engine) -> None:
    # The first 14 tokens are common, 12 of them on full pages.
    tails = [tuple(range(start, start + 9)) for start in (1, 41, 81)]
    found = [ask(engine, PROMPT[:14] + tail) for tail in tails]
    # A state can be had only where a step ended: the second request leaves one where the known pages end.
    assert [answer.reused for answer in found] == [0, 0 if has_states(engine) else 12, 12]
    for answer, tail in zip(found, tails, strict=True):
        assert_same(answer, ask(without, PROMPT[:14] + tail))


def test_a_conversation_goes_on_where_it_was(engine: Engine, without: Engine) -> None:
    first = ask(engine, PROMPT, count=9)
    longer = (*PROMPT, *first.token_ids, 3, 1, 4)
    found = ask(engine, longer)
    assert found.reused == (28 if has_states(engine) else 36), "answers are found too where no state is needed"
    assert_same(found, ask(without, longer))


def test_a_longer_prompt_is_not_the_shorter_one(engine: Engine, without: Engine) -> None:
    ask(engine, PROMPT[:9])
    shifted = PROMPT[1:9] + PROMPT[:9]
    found = ask(engine, shifted)
    assert found.reused == 0, "the same tokens elsewhere are something else"
    assert_same(found, ask(without, shifted))


def test_two_at_once_share_what_a_third_left(engine: Engine, without: Engine) -> None:
    ask(engine, PROMPT)
    params = SamplingParams(max_tokens=6, ignore_eos=True)
    for name in "ab":
        engine.add(Request(name, PROMPT, params))
    engine.step()
    one, two = (sequence.held.pages for sequence in engine.scheduler.running)
    assert one[:7] == two[:7] and not set(one[7:]) & set(two[7:])
    tokens: dict[str, list[int]] = {"a": [], "b": []}
    while engine.has_work():
        for output in engine.step():
            tokens[output.request_id].append(output.token_id)
        engine.scheduler.running.reverse()  # the order of a batch is of no account
    wanted = ask(without, PROMPT).token_ids
    assert tuple(tokens["a"]) == tuple(tokens["b"]) == wanted[1:]


def test_an_aborted_prompt_leaves_what_it_computed(folder: Path, make_engine, without: Engine) -> None:
    engine: Engine = make_engine(folder, page_size=PAGE, max_model_len=96, max_num_batched_tokens=16, debug=True)
    engine.add(Request("a", PROMPT, SamplingParams(max_tokens=6)))
    engine.step()
    assert engine.abort("a")
    found = ask(engine, PROMPT)
    assert found.reused == (0 if has_states(engine) else 16)
    assert_same(found, ask(without, PROMPT))


def test_preempted_sequences_find_their_own_again(folder: Path, make_engine, without: Engine) -> None:
    per_page = without.memory.kv_bytes // without.memory.num_pages
    tight: Engine = make_engine(
        folder, page_size=PAGE, max_model_len=44, max_num_seqs=4, kv_cache_bytes=14 * per_page, debug=True
    )
    prompts = [PROMPT[:17] + tuple(range(start, start + 5)) for start in (1, 41, 81)]
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    found = tight.generate([Request(str(i), prompt, params) for i, prompt in enumerate(prompts)])
    assert tight.stats().preemptions > 0
    for answer, prompt in zip(found, prompts, strict=True):
        assert answer.token_ids == ask(without, prompt, count=12).token_ids
    assert tight.stats().prompt_tokens == sum(map(len, prompts)), "counted once, however often computed"


def test_room_is_taken_from_what_is_kept(folder: Path, make_engine, without: Engine) -> None:
    per_page = without.memory.kv_bytes // without.memory.num_pages
    small: Engine = make_engine(folder, page_size=PAGE, max_model_len=40, kv_cache_bytes=10 * per_page, debug=True)
    others = [tuple(random.Random(seed).choices(range(256), k=30)) for seed in range(3)]
    for _ in range(2):
        for prompt in (PROMPT, *others):
            assert_same(ask(small, prompt, count=1), ask(without, prompt, count=1))
    assert small.stats().pages_free == 10
    assert small.cache.snapshots is not None
    assert small.cache.snapshots.nbytes <= len(others) * small.cache.storage.slot_bytes, "lost with their pages"


def test_a_whole_forward_neither_finds_nor_leaves_anything(engine: Engine) -> None:
    before = engine.forward(PROMPT)
    ask(engine, PROMPT)
    assert torch.equal(engine.forward(PROMPT), before)
    assert engine.cache.pages.num_idle == 9, "of the answered request alone: 36 of 37 tokens were computed"


def test_numbers_that_are_not_finite_are_not_kept(engine: Engine, without: Engine) -> None:
    weight = engine.model.norm.weight
    kept = weight.detach().clone()
    ask(engine, PROMPT[:9])
    weight.data.fill_(float("nan"))
    with pytest.raises(NotFinite):
        ask(engine, PROMPT)
    weight.data.copy_(kept)
    found = ask(engine, PROMPT)
    assert found.reused == 0, "the pages that the broken request shared are not trusted either"
    assert_same(found, ask(without, PROMPT))


def test_images_are_part_of_what_a_page_holds(tiny_llama: Path, make_engine) -> None:
    engine: Engine = make_engine(tiny_llama, page_size=PAGE, max_model_len=96)
    one, two = torch.randn(2, 6, engine.profile.hidden_size)
    answers = [ask(engine, PROMPT, images=(ImageSpan(9, image),)) for image in (one, two, one)]
    assert [answer.reused for answer in answers] == [0, 8, 28]
    assert answers[0].token_ids == answers[2].token_ids
    assert relative_error(torch.tensor(answers[1].logprobs), torch.tensor(answers[0].logprobs)) > 1e-3
    assert ask(engine, PROMPT).reused == 8, "placeholders without an image are only tokens"
    turned = (ImageSpan(9, one, (2, 3)), ImageSpan(9, one, (3, 2)))
    assert [ask(engine, PROMPT, images=(image,)).reused for image in turned] == [8, 8], "how they lie counts too"


def test_a_state_that_is_not_restored_is_noticed(tiny_kimi_k3: Path, make_engine, monkeypatch) -> None:
    engine: Engine = make_engine(tiny_kimi_k3, page_size=PAGE, max_model_len=96)
    sound = ask(engine, PROMPT)
    monkeypatch.setattr(engine.cache.storage, "restore_state", lambda slot, snapshot: None)
    broken = ask(engine, PROMPT)
    assert broken.reused == 28
    assert relative_error(torch.tensor(broken.logprobs), torch.tensor(sound.logprobs)) > 1e-3


def test_without_room_for_a_state_nothing_is_split_or_kept(tiny_kimi_k3: Path, make_engine) -> None:
    engine: Engine = make_engine(tiny_kimi_k3, page_size=PAGE, max_model_len=96, snapshot_bytes=1000)
    assert [ask(engine, PROMPT, count=1).reused for _ in range(2)] == [0, 0]
    assert engine.stats().steps == 2, "each prompt in one step"


def test_it_can_be_switched_off(without: Engine) -> None:
    assert [ask(without, PROMPT).reused for _ in range(2)] == [0, 0]
    assert without.cache.pages.num_idle == 0
