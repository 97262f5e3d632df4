"""Phase "performance": latency and throughput under a closed loop, and memory against the plan."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Sequence
from dataclasses import asdict

from day0.checklist.checklist import Measured, Outcome
from day0.checklist.figures import LoadFigures, MemoryPeak, Timing, load_figures
from day0.checklist.gate import ROUNDS, geometric_mean
from day0.checklist.probe_runtime import RuntimeTarget
from day0.checklist.probe_text import first_fault
from day0.checklist.prompts import prompt_ids
from day0.checklist.target import Answer, Ask, CheckContext

SETTLED = 0.05
MOST_WARM_UP = 8


def load(
    context: CheckContext,
    *,
    concurrency: int = 1,
    requests: int = 6,
    prompt_tokens: int = 32,
    max_tokens: int = 32,
) -> Outcome:
    """Streamed requests, `concurrency` of them at any time; one warm-up round is not counted."""
    limit = context.target.max_model_len()
    if limit is not None:
        max_tokens = min(max_tokens, max(2, limit // 2))
        prompt_tokens = min(prompt_tokens, limit - max_tokens)
    asks = [Ask(prompt_ids(context, index, prompt_tokens), max_tokens, stream=True) for index in range(requests)]
    context.target.ask(asks[:concurrency], concurrency=concurrency)
    started = time.perf_counter()
    answers = context.target.ask(asks, concurrency=concurrency)
    wall = time.perf_counter() - started
    timed = timings_of(answers)
    if not timed:
        nothing = dict.fromkeys(("ttft_ms", "tpot_ms", "tokens_per_s"))
        message = first_fault(answers) or "no request gave two tokens"
        return Measured(len(answers), {"unanswered": len(answers), **nothing}, message=message)
    figures = load_figures(timed, concurrency, wall)
    return Measured(
        inspected=figures.requests,
        values={
            "unanswered": len(answers) - len(timed),
            **asdict(figures),
            "prompt_tokens": prompt_tokens,
            "max_tokens": max_tokens,
            "wall_s": wall,
        },
        message=first_fault(answers) or _summary(figures),
    )


def _summary(figures: LoadFigures) -> str:
    return (
        f"{figures.ttft_ms:.1f} ms to the first token, {figures.tpot_ms:.2f} ms per token, "
        f"{figures.tokens_per_s:.0f} tokens/s"
    )


def steady(
    context: CheckContext,
    *,
    concurrency: int = 1,
    rounds: int = 12,
    requests: int = 2,
    prompt_tokens: int = 32,
    max_tokens: int = 16,
) -> Outcome:
    """Rounds of one load after a warm-up, each with figures of its own: what a baseline's noise is known from.

    Warm is a round that is not more than a twentieth faster than the one before it; these rounds are not measured.
    """
    limit = context.target.max_model_len()
    if limit is not None:
        max_tokens = min(max_tokens, max(2, limit // 2))
        prompt_tokens = min(prompt_tokens, limit - max_tokens)
    asks = [Ask(prompt_ids(context, index, prompt_tokens), max_tokens, stream=True) for index in range(requests)]
    warm_up = _warm_up(context, asks, concurrency)
    answers: list[Answer] = []
    figures: list[LoadFigures] = []
    for _ in range(rounds):
        started = time.perf_counter()
        answered = context.target.ask(asks, concurrency=concurrency)
        wall = time.perf_counter() - started
        answers += answered
        timed = timings_of(answered)
        if timed:
            figures.append(load_figures(timed, concurrency, wall))
    miscounted = sum(answer.completion_tokens != max_tokens for answer in answers if answer.fate == "done")
    return Measured(
        inspected=len(answers),
        values={
            "unanswered": len(answers) - sum(figure.requests for figure in figures),
            "miscounted": miscounted,
            "warm_up_rounds": warm_up,
            **round_values(figures),
        },
        message=first_fault(answers),
    )


def _warm_up(context: CheckContext, asks: list[Ask], concurrency: int) -> int:
    """How many rounds it took until one was no faster than the one before by more than `SETTLED`."""
    before = math.inf
    for number in range(1, MOST_WARM_UP + 1):
        started = time.perf_counter()
        context.target.ask(asks, concurrency=concurrency)
        seconds = time.perf_counter() - started
        if seconds >= (1 - SETTLED) * before:
            return number
        before = seconds
    return MOST_WARM_UP


def timings_of(answers: Sequence[Answer]) -> list[Timing]:
    """Timings of the answers that came with two tokens or more."""
    timings = [
        Timing(answer.arrivals, answer.completion_tokens or len(answer.arrivals))
        for answer in answers
        if answer.fate == "done"
    ]
    return [timing for timing in timings if timing.arrivals and timing.tokens > 1]


def round_values(figures: Sequence[LoadFigures]) -> dict[str, object]:
    """What `slowdown_of_baseline` judges: the geometric mean over the rounds of each figure, and the rounds."""
    values: dict[str, object] = {}
    for name in ("ttft_ms", "tpot_ms"):
        rounds = [getattr(figure, name) for figure in figures]
        values |= {name: geometric_mean(rounds), name + ROUNDS: rounds}
    return values


def memory(context: CheckContext, *, concurrency: int = 4, prompt_tokens: int = 64, max_tokens: int = 16) -> Outcome:
    """Memory taken by starting and by a load, beside what the settings planned for weights and cache."""
    target = context.target
    assert isinstance(target, RuntimeTarget)
    engine, facts = target.engine(), target.start_facts
    assert facts is not None
    max_tokens = min(max_tokens, engine.max_model_len // 2)
    prompt_tokens = min(prompt_tokens, engine.max_model_len - max_tokens)
    asks = [Ask(prompt_ids(context, index, prompt_tokens), max_tokens) for index in range(concurrency)]
    gc.collect()
    with MemoryPeak() as peak:
        answers = target.ask(asks, concurrency=concurrency)
    planned = {
        "weights": engine.memory.weight_bytes,
        "workspace": engine.memory.workspace_bytes + engine.memory.relaid_bytes,
        "cache": engine.memory.kv_bytes,
        "states": engine.memory.state_bytes,
    }
    measured = {"start": max(0, facts.bytes_after - facts.bytes_before), "load": peak.peak - peak.before}
    return Measured(
        inspected=len(answers),
        values={
            "planned_bytes": planned,
            "measured_bytes": measured,
            "unplanned_bytes": sum(measured.values()) - sum(planned.values()),
        },
        message=first_fault(answers),
        hint="activations, or something held twice; cache that was never written takes no memory yet",
    )
