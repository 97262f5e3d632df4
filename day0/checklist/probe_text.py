"""Phase "text": answers that mean something, the same streamed and whole, and an end for the right reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from day0.checklist.checklist import Measured, NotChecked, Outcome, Where
from day0.checklist.client import EndpointTarget
from day0.checklist.probe_paths import first_difference
from day0.checklist.probe_runtime import RuntimeTarget
from day0.checklist.prompts import prompt_ids, sentence_ids
from day0.checklist.target import Answer, Ask, CheckContext


def greedy(context: CheckContext, *, prompts: int = 4, max_tokens: int = 24, concurrency: int = 4) -> Outcome:
    """Greedy answers to different beginnings: all there, different from one another, not one token over and over."""
    asks = [Ask(sentence_ids(context, index), max_tokens=max_tokens) for index in range(prompts)]
    answers = context.target.ask(asks, concurrency=concurrency)
    done = [answer for answer in answers if answer.fate == "done"]
    return Measured(
        inspected=len(answers),
        values={
            "unanswered": len(answers) - len(done),
            "empty": sum(not answer.output for answer in done),
            "distinct_answers": len({answer.output for answer in done}),
            "longest_run_share": max((_longest_run(answer.output) for answer in done), default=1.0),
            "first_answer": done[0].text[:120] if done else "",
        },
        message=first_fault(answers),
        hint="the same answer to every prompt means that attention or the embedding does not reach the output",
    )


def first_fault(answers: Sequence[Answer]) -> str:
    """What the first answer that did not come says for itself."""
    return next((f"{answer.fate}: {answer.message}" for answer in answers if answer.fate != "done"), "")


def _longest_run(output: Sequence[object]) -> float:
    """The longest stretch of one token (or character) over and over, as a share of the answer."""
    longest = run = 0
    before: object = None
    for item in output:
        run = run + 1 if item == before else 1
        longest, before = max(longest, run), item
    return longest / len(output) if output else 1.0


def expected(context: CheckContext, *, prompt: str, contains: str, max_tokens: int = 32) -> Outcome:
    """Whether the greedy answer to a prompt contains a text; for checklists that know their model."""
    (answer,) = context.target.ask([Ask(prompt, max_tokens, ignore_eos=False)], concurrency=1)
    found = answer.fate == "done" and contains in answer.text
    message = first_fault([answer]) or ("" if found else f"{contains!r} is not in {answer.text!r:.200}")
    return Measured(1, {"found": found, "answer": answer.text[:500]}, message=message)


def streamed(context: CheckContext, *, prompts: int = 3, max_tokens: int = 24) -> Outcome:
    """A streamed answer is the whole one in pieces: same text, same tokens, same reason to end."""
    asks = [Ask(sentence_ids(context, index), max_tokens=max_tokens) for index in range(prompts)]
    whole = context.target.ask(asks, concurrency=1)
    pieces = context.target.ask([replace(ask, stream=True) for ask in asks], concurrency=1)
    pairs = list(zip(whole, pieces, strict=True))
    different = [pair for pair in pairs if _facts(pair[0]) != _facts(pair[1])]
    message = first_fault([*whole, *pieces])
    if different and not message:
        message = f"whole {_facts(different[0][0])!r:.200}, streamed {_facts(different[0][1])!r:.200}"
    return Measured(
        inspected=len(pairs),
        values={
            "unanswered": sum(answer.fate != "done" for answer in (*whole, *pieces)),
            "different": len(different),
            "no_finish_reason": sum(answer.finish_reason is None for answer in (*whole, *pieces)),
            "most_pieces": max(len(answer.arrivals) for answer in pieces),
        },
        message=message,
        hint="incremental decoding holds back or loses text, or the stream ends early",
    )


def _facts(answer: Answer) -> tuple[object, ...]:
    return answer.text, answer.token_ids, answer.finish_reason, answer.completion_tokens


def finish(context: CheckContext, *, max_tokens: int = 16) -> Outcome:
    """`length` after exactly the tokens allowed; `stop` at a stop text, which is cut off; `stop` at a stop token."""
    ask = Ask(sentence_ids(context, 0), max_tokens=max_tokens)
    plain, short = context.target.ask([ask, replace(ask, max_tokens=5)], concurrency=1)
    wrong = []
    parts = 1
    if (plain.finish_reason, plain.completion_tokens) != ("length", max_tokens) or short.completion_tokens != 5:
        wrong.append(f"length: {plain.finish_reason} after {plain.completion_tokens} of {max_tokens} tokens")
    stop = stop_text(plain.text)
    if stop is not None:
        parts += 1
        (answer,) = context.target.ask([replace(ask, stop=(stop,))], concurrency=1)
        if answer.finish_reason != "stop" or answer.text != plain.text[: plain.text.index(stop)]:
            wrong.append(f"stop text {stop!r}: {answer.finish_reason}, {answer.text!r:.80}")
    if plain.token_ids:
        parts += 1
        token = plain.token_ids[len(plain.token_ids) // 2]
        (answer,) = context.target.ask([replace(ask, stop_token_ids=(token,))], concurrency=1)
        if answer.finish_reason != "stop" or answer.token_ids != plain.token_ids[: plain.token_ids.index(token) + 1]:
            wrong.append(f"stop token {token}: {answer.finish_reason} after {answer.completion_tokens}")
    fault = first_fault([plain, short])
    return Measured(
        parts, {"wrong": len(wrong), "parts": parts}, message="; ".join([*wrong, *([fault] if fault else [])])
    )


def stop_text(text: str) -> str | None:
    """A piece of an answer, from its middle if that can be, that does not begin it."""
    for length in (2, 1):
        for start in (*range(len(text) // 2, len(text)), *range(1, len(text) // 2)):
            piece = text[start : start + length]
            if piece.strip() and text.index(piece) > 0 and "\N{REPLACEMENT CHARACTER}" not in piece:
                return piece
    return None


def seeded(context: CheckContext, *, max_tokens: int = 16, seeds: int = 4) -> Outcome:
    """Sampling with a seed repeats itself, whatever else is in the batch; other seeds say other things."""
    prompt = sentence_ids(context, 1)
    asks = [Ask(prompt, max_tokens, temperature=1.0, seed=context.seed + seed) for seed in range(seeds)]
    first, again = (context.target.ask(asks, concurrency=1) for _ in range(2))
    together = context.target.ask(asks, concurrency=seeds)
    return Measured(
        inspected=len(asks),
        values={
            "unanswered": sum(answer.fate != "done" for answer in (*first, *again, *together)),
            "not_repeated": _num_different(first, again),
            "changed_by_neighbours": _num_different(first, together),
            "distinct_over_seeds": len({answer.output for answer in again}),
        },
        message=first_fault([*first, *again, *together]),
        hint="the random state is shared between requests, or the seed is not used",
    )


def _num_different(ones: Sequence[Answer], twos: Sequence[Answer]) -> int:
    return sum(one.output != two.output for one, two in zip(ones, twos, strict=True))


def lengths(context: CheckContext, *, longest: int = 2048, max_tokens: int = 4) -> Outcome:
    """Prompts around every size the runtime has (page, chunk) and as long as the context allows, all answered."""
    limit = context.target.max_model_len() or context.profile.max_position or longest
    most = min(limit, longest) - max_tokens
    sizes = {1, 2, most - 1, most}
    for step in _step_sizes(context):
        sizes |= {step - 1, step, step + 1, 2 * step, 2 * step + 1}
    chosen = sorted(size for size in sizes if 1 <= size <= most)
    asks = [Ask(prompt_ids(context, 2, size), max_tokens) for size in chosen]
    answers = context.target.ask(asks, concurrency=4)
    bad = [
        size
        for size, answer in zip(chosen, answers, strict=True)
        if answer.fate != "done" or answer.completion_tokens != max_tokens
    ]
    return Measured(
        inspected=len(answers),
        values={"wrong": len(bad), "lengths": chosen, "longest": chosen[-1] if chosen else 0, "limit": limit},
        where=Where(length=bad[0]) if bad else None,
        message=first_fault(answers) or (f"a prompt of {bad[0]} tokens is not answered in full" if bad else ""),
    )


def _step_sizes(context: CheckContext) -> tuple[int, ...]:
    if isinstance(context.target, RuntimeTarget):
        settings = context.target.settings
        return settings.page_size, settings.max_num_batched_tokens
    return 16, 64, 256  # usual page sizes of other engines


def too_long(context: CheckContext) -> Outcome:
    """A prompt beyond the context is refused naming both lengths, and the next one is answered."""
    limit = context.target.max_model_len()
    if limit is None:
        return NotChecked("skip", "the target does not say how long a sequence may be")
    length = limit + 1
    refused, after = context.target.ask(
        [Ask(prompt_ids(context, 0, length), max_tokens=1), Ask(sentence_ids(context, 0), max_tokens=2)], concurrency=1
    )
    return Measured(
        inspected=1,
        values={
            "fate": refused.fate,
            "names_prompt_length": str(length) in refused.message,
            "names_limit": str(limit) in refused.message,
            "answers_afterwards": after.fate == "done",
            "length": length,
            "limit": limit,
        },
        where=Where(length=length),
        message="" if refused.fate == "refused" else f"{refused.fate}: {refused.message}",
    )


def resumed(context: CheckContext, *, prompts: int = 3, max_tokens: int = 12) -> Outcome:
    """A conversation taken up again: prompt and half the answer, sent as a new prompt, go on as before."""
    prompt_list = [sentence_ids(context, index) for index in range(prompts)]
    straight = context.target.ask([Ask(prompt, 2 * max_tokens) for prompt in prompt_list], concurrency=prompts)
    again = [
        Ask(prompt + (answer.token_ids or ())[:max_tokens], max_tokens)
        for prompt, answer in zip(prompt_list, straight, strict=True)
    ]
    resumed_answers = context.target.ask(again, concurrency=prompts)
    different = [
        index
        for index, (whole, rest) in enumerate(zip(straight, resumed_answers, strict=True))
        if _parts(context, again[index].prompt, whole, rest)
    ]
    return Measured(
        inspected=len(prompt_list),
        values={"different": len(different)},
        where=Where(length=len(again[different[0]].prompt)) if different else None,
        message=first_fault([*straight, *resumed_answers]),
        hint="decode and prefill disagree, or a prefix is not reused as it was",
    )


def _parts(context: CheckContext, prompt: tuple[int, ...] | str, whole: Answer, rest: Answer) -> bool:
    """Whether the rest of a whole answer and the answer to its first half differ, near ties aside."""
    if whole.fate != "done" or rest.fate != "done" or not whole.token_ids or not rest.token_ids:
        return True
    one, two = whole.token_ids[-len(rest.token_ids) :], rest.token_ids
    if not isinstance(context.target, RuntimeTarget) or isinstance(prompt, str):
        return one != two
    return first_difference(context.target.engine(), prompt, one, two) is not None


def malformed(context: CheckContext) -> Outcome:
    """Nonsense over HTTP is the caller's fault (4xx, with a message), and the server lives on."""
    target = context.target
    assert isinstance(target, EndpointTarget)
    good = {"model": target.served_model().get("id", ""), "prompt": "a", "max_tokens": 1}
    bodies: dict[str, object] = {
        "not JSON": "{",
        "no prompt": {"model": good["model"]},
        "negative max_tokens": good | {"max_tokens": -1},
        "temperature as text": good | {"temperature": "hot"},
        "unknown model": good | {"model": "no-such-model"},
    }
    statuses = {name: target.post("/v1/completions", body).status for name, body in bodies.items()}
    wrong = [name for name, status in statuses.items() if not 400 <= status < 500]
    return Measured(
        inspected=len(bodies),
        values={
            "not_refused": len(wrong),
            "statuses": statuses,
            "answers_afterwards": target.post("/v1/completions", good).status == 200,
        },
        message=f"{wrong[0]}: status {statuses[wrong[0]]}" if wrong else "",
    )
