"""Phase "stability": disorder leaves nothing behind, and no load changes an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from day0.checklist.checklist import Measured, NotChecked, Outcome
from day0.checklist.probe_paths import engine_of, first_difference, sibling
from day0.checklist.probe_runtime import EngineClient
from day0.checklist.probe_text import first_fault
from day0.checklist.prompts import prompt_ids, sentence_ids
from day0.checklist.target import Answer, Ask, CheckContext
from day0.plan.settings import EngineSettings
from day0.runtime.cache.pages import pages_for
from day0.runtime.engine.engine import Engine


def mixed(context: CheckContext, *, requests: int = 24, concurrency: int = 8, max_tokens: int = 12) -> Outcome:
    """Answers, sampled and greedy, short and long, abandoned and refused, in one heap; canaries before and after."""
    canaries = [Ask(sentence_ids(context, index), max_tokens) for index in range(3)]
    before = context.target.ask(canaries, concurrency=1)
    asks = [_mixed_ask(context, index, max_tokens) for index in range(requests)]
    answers = context.target.ask(asks, concurrency=concurrency)
    after = context.target.ask(canaries, concurrency=1)
    nonsense = [answer for index, answer in enumerate(answers) if index % 6 == 5]
    sensible = [answer for index, answer in enumerate(answers) if index % 6 != 5]
    changed = sum(one.output != two.output for one, two in zip(before, after, strict=True))
    return Measured(
        inspected=len(answers),
        values={
            "unanswered": sum(answer.fate != "done" for answer in (*before, *sensible, *after)),
            "nonsense_not_refused": sum(answer.fate != "refused" for answer in nonsense),
            "canaries_changed": changed,
            "abandoned": sum(answer.finish_reason == "abort" for answer in answers),
        },
        message=first_fault([*before, *sensible, *after]),
        hint="a request that ends early leaves something behind for the next one",
    )


def _mixed_ask(context: CheckContext, index: int, max_tokens: int) -> Ask:
    """Six kinds in turn; the last is beyond the vocabulary or, for servers that take no ids, the context."""
    ask = Ask(sentence_ids(context, index), max_tokens, temperature=float(index % 2), seed=index)
    kind = index % 6
    if kind == 1:
        return replace(ask, prompt=prompt_ids(context, index, 3 * (index + 5)))
    if kind == 2:
        return replace(ask, stream=True, abandon_after=1 + index % 3)
    if kind == 3:
        return replace(ask, stream=True)
    if kind == 4:
        return replace(ask, max_tokens=1)
    if kind == 5:
        limit = context.target.max_model_len() or context.profile.max_position or 4096
        return replace(ask, max_tokens=limit + index)
    return ask


def leaks(context: CheckContext, *, rounds: int = 3, concurrency: int = 6) -> Outcome:
    """After answers, aborts in prefill and in decode, and refusals, every page and state slot is free again."""
    engine = engine_of(context)
    client = EngineClient(engine, context.target.tokenizer)
    counts = [_held(engine)]
    for number in range(rounds):
        client.ask([_mixed_ask(context, 6 * number + index, 6) for index in range(12)], concurrency=concurrency)
        counts.append(_held(engine))
    pages, slots, requests = (counts[-1][index] - counts[0][index] for index in range(3))
    return Measured(
        inspected=12 * rounds,
        values={
            "pages_leaked": pages,
            "state_slots_leaked": slots,
            "requests_left": requests,
            "pages_held_by_round": [count[0] for count in counts],
        },
        hint="an end, an abort or a refusal does not give back what was taken",
    )


def _held(engine: Engine) -> tuple[int, int, int]:
    stats = engine.stats()
    return (
        stats.pages_total - stats.pages_free,
        stats.state_slots_total - stats.state_slots_free,
        stats.running + stats.waiting,
    )


def stale(context: CheckContext, *, rounds: int = 2, max_tokens: int = 8) -> Outcome:
    """Freed memory is filled with NaN; answers on reused pages and slots are those of a fresh engine."""
    engine = engine_of(context)
    prompts = [prompt_ids(context, index, 5 + 9 * index) for index in range(4)]
    prompts = [prompt for prompt in prompts if len(prompt) + max_tokens <= engine.max_model_len]
    longest = max(map(len, prompts), default=1) + max_tokens
    settings = replace(_small(engine, 2, longest), debug=True)
    reused = sibling(engine, settings)
    different: list[int] = []
    compared = 0
    for number in range(rounds):
        order = prompts if number % 2 == 0 else prompts[::-1]
        EngineClient(reused, None).ask(
            [Ask(prompt, max_tokens, stream=True, abandon_after=2) for prompt in order], concurrency=2
        )
        again = EngineClient(reused, None).ask([Ask(prompt, max_tokens) for prompt in order], concurrency=2)
        for prompt, answer in zip(order, again, strict=True):
            fresh = EngineClient(sibling(engine, settings), None).ask([Ask(prompt, max_tokens)], concurrency=1)[0]
            compared += 1
            if _parts(engine, prompt, fresh, answer):
                different.append(len(prompt))
    return Measured(
        inspected=compared,
        values={"different": len(different), "lengths": different},
        message=f"a prompt of {different[0]} tokens gets another answer on reused memory" if different else "",
        hint="a page or state slot is read before it is written, or a state is not reset",
    )


def _small(engine: Engine, sequences: int, tokens: int) -> EngineSettings:
    """Settings of an engine with room for so many sequences of `tokens` tokens, and seats for no more."""
    room = _bytes_for(engine, sequences, tokens)
    return replace(engine.settings, max_num_seqs=sequences, max_model_len=tokens, kv_cache_bytes=room)


def _bytes_for(engine: Engine, sequences: int, tokens: int) -> int:
    """Cache bytes for so many sequences of `tokens` tokens."""
    return sequences * pages_for(tokens, engine.settings.page_size) * _page_bytes(engine)


def _page_bytes(engine: Engine) -> int:
    return engine.memory.kv_bytes // engine.memory.num_pages


def _parts(engine: Engine, prompt: Sequence[int], one: Answer, two: Answer) -> bool:
    if one.fate != "done" or two.fate != "done":
        return True
    return first_difference(engine, prompt, one.token_ids or (), two.token_ids or ()) is not None


def pressure(context: CheckContext, *, requests: int = 4, length: int = 24, max_tokens: int = 40) -> Outcome:
    """More sequences than the cache holds: some wait or start over, and all answers stay the same."""
    engine = engine_of(context)
    if _page_bytes(engine) == 0:
        return NotChecked("na", "the model keeps no cache that grows")
    if length + max_tokens > engine.max_model_len:
        return NotChecked("skip", f"{length + max_tokens} tokens do not fit the context of {engine.max_model_len}")
    prompts = [prompt_ids(context, 7 + index, length) for index in range(requests)]
    asks = [Ask(prompt, max_tokens) for prompt in prompts]
    roomy = context.target.ask(asks, concurrency=requests)
    settings = replace(
        engine.settings,
        max_model_len=length + max_tokens,
        max_num_seqs=requests,
        kv_cache_bytes=_bytes_for(engine, 1, length + max_tokens) + _bytes_for(engine, requests - 1, length),
    )
    tight_engine = sibling(engine, settings)
    tight = EngineClient(tight_engine, None).ask(asks, concurrency=requests)
    different = [
        index
        for index, (one, two) in enumerate(zip(roomy, tight, strict=True))
        if _parts(engine, prompts[index], one, two)
    ]
    return Measured(
        inspected=len(asks),
        values={
            "different": len(different),
            "preemptions": tight_engine.stats().preemptions,
            "pages_held_afterwards": _held(tight_engine)[0],
        },
        message=first_fault([*roomy, *tight]),
        hint="a sequence that had to start over does not come back to where it was",
    )


def overload(context: CheckContext, *, requests: int = 12) -> Outcome:
    """More requests than seats and queue: the rest is refused as overload, those taken are answered."""
    engine = engine_of(context)
    asks = [Ask(sentence_ids(context, index), 4) for index in range(requests)]
    settings = _small(engine, 1, max(len(ask.prompt) for ask in asks) + 4)
    small = EngineClient(sibling(engine, replace(settings, max_queue=2)), None)
    answers = small.ask(asks, concurrency=requests)
    after = small.ask(asks[:1], concurrency=1)
    return _overload_measured(answers, after)


def flood(context: CheckContext, *, requests: int = 64) -> Outcome:
    """Many requests at once at a server: each is answered or refused as overload, and the server lives on."""
    asks = [Ask(sentence_ids(context, index), 4) for index in range(requests)]
    answers = context.target.ask(asks, concurrency=requests)
    return _overload_measured(answers, context.target.ask(asks[:1], concurrency=1))


def _overload_measured(answers: Sequence[Answer], after: Sequence[Answer]) -> Measured:
    fates = [answer.fate for answer in answers]
    return Measured(
        inspected=len(answers),
        values={
            "answered": fates.count("done"),
            "overloaded": fates.count("overloaded"),
            "neither": len(fates) - fates.count("done") - fates.count("overloaded"),
            "answers_afterwards": after[0].fate == "done",
        },
        message=next((answer.message for answer in (*answers, *after) if answer.fate in ("failed", "refused")), ""),
    )
