"""For every probe one fault that it must find: a check that cannot fail says nothing when it passes.

A fault is put into a sound context for as long as a block runs, and taken out again.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import count

from day0.checklist import probe_faults_inside as inside
from day0.checklist import probe_faults_roads as roads
from day0.checklist import probe_faults_wire as wire
from day0.checklist.checklist import Checklist, ChecklistRun, CheckResult, CheckSpec
from day0.checklist.client import EndpointTarget, Reply
from day0.checklist.probe_runtime import RuntimeTarget
from day0.checklist.probe_table import PROBES
from day0.checklist.target import Answer, Ask, CheckContext
from day0.errors import InputError
from day0.runtime.tokenizer import Tokenizer

Alter = Callable[[Ask, Answer], Answer]


@dataclass(frozen=True, slots=True)
class Fault:
    """What is broken, in words, and how it is put in."""

    what: str
    inject: Callable[[CheckContext], AbstractContextManager[CheckContext]]


def check_with_fault(spec: CheckSpec, context: CheckContext) -> CheckResult:
    """The result of one check while its probe's fault is in place."""
    with FAULTS[spec.probe].inject(context) as faulty:
        run = ChecklistRun(Checklist("self-test", "", (spec,)), PROBES, faulty, lacks=faulty.target.lacks)
        run.run()
    return run.results[spec.id]


def altered(alter: Alter) -> Callable[[CheckContext], AbstractContextManager[CheckContext]]:
    """Answers of the target changed one by one, on whatever target."""

    @contextmanager
    def inject(context: CheckContext) -> Iterator[CheckContext]:
        target = copy.copy(context.target)
        sound = context.target.ask

        def ask(asks: Sequence[Ask], *, concurrency: int) -> list[Answer]:
            answers = sound(asks, concurrency=concurrency)
            return [alter(one, answer) for one, answer in zip(asks, answers, strict=True)]

        target.ask = ask  # type: ignore[method-assign]
        yield replace(context, target=target)

    return inject


def frozen_answer(ask: Ask, answer: Answer) -> Answer:
    return replace(answer, text="the the the", token_ids=None if answer.token_ids is None else (7, 7, 7))


def lost_piece(ask: Ask, answer: Answer) -> Answer:
    """A stream that loses its last character."""
    return replace(answer, text=answer.text[:-1], token_ids=answer.token_ids) if ask.stream else answer


def other_reason(ask: Ask, answer: Answer) -> Answer:
    return replace(answer, finish_reason="stop" if answer.finish_reason == "length" else "length")


def short_at_pages(ask: Ask, answer: Answer) -> Answer:
    """An answer cut off where the prompt fills a page exactly."""
    cut = len(ask.prompt) % 16 == 0
    return replace(answer, completion_tokens=1) if cut else answer


def takes_anything(ask: Ask, answer: Answer) -> Answer:
    """A target that cuts a prompt in silence instead of refusing it."""
    return replace(answer, fate="done", message="") if answer.fate == "refused" else answer


def loses_all(ask: Ask, answer: Answer) -> Answer:
    return Answer("failed", "connection reset")


@contextmanager
def unseeded(context: CheckContext) -> Iterator[CheckContext]:
    """Every sampled answer with a seed of its own, whatever the request says."""
    numbers = count(1000)
    target = copy.copy(context.target)
    sound = context.target.ask

    def ask(asks: Sequence[Ask], *, concurrency: int) -> list[Answer]:
        return sound([replace(one, seed=next(numbers)) for one in asks], concurrency=concurrency)

    target.ask = ask  # type: ignore[method-assign]
    yield replace(context, target=target)


@contextmanager
def changed_by_aborts(context: CheckContext) -> Iterator[CheckContext]:
    """Once a request was abandoned, later answers carry something of it."""
    target = copy.copy(context.target)
    sound = context.target.ask
    abandoned = False

    def ask(asks: Sequence[Ask], *, concurrency: int) -> list[Answer]:
        nonlocal abandoned
        answers = sound(asks, concurrency=concurrency)
        if abandoned:
            answers = [
                replace(answer, text="!" + answer.text, token_ids=(0, *(answer.token_ids or ()))) for answer in answers
            ]
        abandoned = abandoned or any(one.abandon_after is not None for one in asks)
        return answers

    target.ask = ask  # type: ignore[method-assign]
    yield replace(context, target=target)


@contextmanager
def dead_server(context: CheckContext) -> Iterator[CheckContext]:
    """A server that is gone: nothing listens at its address."""
    assert isinstance(context.target, EndpointTarget)
    target = EndpointTarget("http://127.0.0.1:9", context.target.tokenizer)
    try:
        yield replace(context, target=target)
    finally:
        target.close()


@contextmanager
def careless_server(context: CheckContext) -> Iterator[CheckContext]:
    """A server that answers nonsense with 500."""
    assert isinstance(context.target, EndpointTarget)
    target = copy.copy(context.target)
    sound = context.target.post

    def post(path: str, body: object) -> Reply:
        reply = sound(path, body)
        return reply if reply.status < 400 else Reply(500, "internal error")

    target.post = post  # type: ignore[method-assign]
    yield replace(context, target=target)


def other_logprobs(ask: Ask, answer: Answer) -> Answer:
    """Another model behind the same name."""
    return replace(answer, logprobs=tuple(value - 1.0 for value in answer.logprobs))


@contextmanager
def missing_tensor(context: CheckContext) -> Iterator[CheckContext]:
    tensors = dict(context.files.tensors or {})
    tensors.pop(next(iter(tensors)), None)
    yield replace(context, files=replace(context.files, tensors=tensors))


@contextmanager
def small_embedding(context: CheckContext) -> Iterator[CheckContext]:
    """An embedding with fewer rows than the tokenizer has tokens."""
    yield replace(context, profile=replace(context.profile, vocab_size=50))


class _DeafTokenizer(Tokenizer):
    """A template that leaves out what was said."""

    def chat_ids(self, *arguments: object, **options: object) -> list[int]:
        return self.encode("assistant:")


@contextmanager
def deaf_template(context: CheckContext) -> Iterator[CheckContext]:
    target = copy.copy(context.target)
    own = context.target.tokenizer
    if own is None:
        raise InputError("the fault needs a tokenizer")
    deaf = copy.copy(own)
    deaf.__class__ = _DeafTokenizer
    target.tokenizer = deaf
    yield replace(context, target=target)


@contextmanager
def sanguine_plan(context: CheckContext) -> Iterator[CheckContext]:
    """A plan whose cache is twice what the runtime makes."""
    assert context.plan is not None
    (rank,) = context.plan.ranks
    yield replace(context, plan=replace(context.plan, ranks=(replace(rank, kv_pool=2 * rank.kv_pool),)))


@contextmanager
def greedy_memory(context: CheckContext) -> Iterator[CheckContext]:
    """A start that took 16 GiB more than planned."""
    assert isinstance(context.target, RuntimeTarget)
    context.target.engine()
    target = copy.copy(context.target)
    facts = target.start_facts
    assert facts is not None
    target.start_facts = replace(facts, bytes_after=facts.bytes_after + (16 << 30))
    yield replace(context, target=target)


FAULTS: Mapping[str, Fault] = {
    "loading.headers": Fault("a tensor is missing", missing_tensor),
    "loading.parameters": Fault("a parameter was never written", inside.unwritten_parameter),
    "loading.values": Fault("two layers are swapped", inside.swapped_layers),
    "loading.packed": Fault("nibbles in the wrong order", inside.swapped_nibbles),
    "loading.sizes": Fault("a weight is held twice", inside.weight_held_twice),
    "startup.device": Fault("a softmax that lets hidden keys in", inside.leaking_softmax),
    "startup.first_forward": Fault("the last norm is zero", inside.dead_norm),
    "startup.cache": Fault("a page is never free", inside.lost_page),
    "startup.plan": Fault("the plan foresaw twice the cache", sanguine_plan),
    "startup.tokenizer": Fault("the embedding is too small", small_embedding),
    "startup.chat_template": Fault("the template leaves out the message", deaf_template),
    "startup.health": Fault("the server is dead", dead_server),
    "text.greedy": Fault("the same answer to everything", altered(frozen_answer)),
    "text.expected": Fault("the same answer to everything", altered(frozen_answer)),
    "text.streamed": Fault("the stream loses its end", altered(lost_piece)),
    "text.finish": Fault("answers give the wrong reason to end", altered(other_reason)),
    "text.seeded": Fault("seeds are not used", unseeded),
    "text.lengths": Fault("answers end early where a prompt fills a page", altered(short_at_pages)),
    "text.too_long": Fault("long prompts are cut in silence", altered(takes_anything)),
    "text.resumed": Fault("decoding writes one place too far", inside.shifted_writes),
    "text.malformed": Fault("nonsense is answered with 500", careless_server),
    "wire.completions": Fault("one token too many is counted", wire.wire_fault("one token too many is counted")),
    "wire.streams": Fault("an id per chunk", wire.wire_fault("an id per chunk")),
    "wire.chat": Fault("the template is applied twice", wire.wire_fault("the template is applied twice")),
    "wire.tools": Fault("arguments as an object", wire.wire_fault("arguments as an object")),
    "wire.refusals": Fault("nonsense is taken", wire.wire_fault("nonsense is taken")),
    "multimodal.tokens": Fault("the tower drops a vector", inside.dropped_vector),
    "multimodal.batch": Fault("images see each other", inside.leaking_images),
    "multimodal.order": Fault("images never reach the model", inside.blind),
    "multimodal.chunked": Fault("a chunk takes the wrong part of an image", inside.shifted_image),
    "multimodal.segments": Fault("patches of an image by columns", inside.patches_by_columns),
    "multimodal.refusals": Fault("broken images are taken", inside.takes_broken_images),
    "numerics.cached": Fault("decoding writes one place too far", inside.shifted_writes),
    "numerics.chunked": Fault("later chunks write one place too far", inside.shifted_writes),
    "numerics.causal": Fault("a mixer sees the future", inside.future_leak),
    "numerics.batched": Fault("sequences of a batch are mixed up", inside.mixed_sequences),
    "numerics.invariance": Fault("a chunk that begins inside a page reads the page before", roads.page_before),
    "numerics.reference": Fault("two layers are swapped", inside.swapped_layers),
    "numerics.endpoint": Fault("another model behind the name", altered(other_logprobs)),
    "stability.mixed": Fault("an abort changes later answers", changed_by_aborts),
    "stability.leaks": Fault("pages and slots are not given back", inside.nothing_given_back),
    "stability.stale": Fault("freed memory is read", inside.stale_reads),
    "stability.pressure": Fault("a preempted sequence forgets", inside.forgetful_preemption),
    "stability.overload": Fault("the queue has no limit", inside.endless_queue),
    "stability.flood": Fault("requests fail under load", altered(loses_all)),
    "performance.load": Fault("requests fail", altered(loses_all)),
    "performance.steady": Fault("requests fail", altered(loses_all)),
    "performance.memory": Fault("start takes 16 GiB more than planned", greedy_memory),
}
"""By probe. `tests/checklist/test_every_check_can_fail.py` holds every shipped check against it."""
