"""Phase "startup": a first forward that means something, a cache that fits the context, a tokenizer that fits both."""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch

from day0.checklist.checklist import Measured, NotChecked, Outcome
from day0.checklist.client import EndpointTarget
from day0.checklist.probe_held import held_profile
from day0.checklist.probe_paths import engine_of
from day0.checklist.probe_runtime import RuntimeTarget
from day0.checklist.probe_upstream import cache_beyond_plan, runs_upstream
from day0.checklist.prompts import prompt_ids
from day0.checklist.target import CheckContext
from day0.errors import Day0Error
from day0.profile.cache_sizes import paged_token_bytes
from day0.runtime.device.contract import breaches
from day0.runtime.device.order import CLAUSES
from day0.runtime.tokenizer import Tokenizer

SAMPLES = (
    "The quick brown fox jumps over the lazy dog.",
    "  two leading spaces,\ttabs\nand\n\nlines",
    "Zürich, naïve, Ωμέγα, Привет, 你好世界, こんにちは, مرحبا, नमस्ते",
    "def f(x): return {'a': [1, 2.5e-3], \"b\": x ** 2}  # comment",
    "👩‍🚀🏳️‍🌈 e\u0301 \u200d ﬁ ½",
)
NO_TOKENIZER = NotChecked("skip", "the model comes without a tokenizer")


def device(context: CheckContext) -> Outcome:
    """What the runtime takes for granted of a device (`docs/device-contract.md`), tried on this one."""
    target = context.target
    assert isinstance(target, RuntimeTarget)
    found = breaches(target.device, CLAUSES)
    return Measured(
        inspected=len(CLAUSES),
        values={"device": str(target.device), "broken": len(found), "clauses": [breach.clause for breach in found]},
        message=f"{found[0].clause}: {found[0].found}" if found else "",
        hint=f"{found[0].why}; docs/device-contract.md" if found else "",
    )


def first_forward(context: CheckContext, *, length: int = 16) -> Outcome:
    """Start-up times by phase, and logits of one short prompt: finite, not constant, different by position."""
    target = context.target
    assert isinstance(target, RuntimeTarget)
    engine = target.engine()
    ids = prompt_ids(context, 0, min(length, engine.max_model_len))
    started = time.perf_counter()
    logits = engine.forward(ids)
    seconds = time.perf_counter() - started
    facts = target.start_facts
    finite = bool(torch.isfinite(logits).all())
    return Measured(
        inspected=logits.numel(),
        values={
            "finite": finite,
            "spread": float(logits[-1].std()) if finite else None,
            "distinct_positions": len(torch.unique(logits, dim=0)) if finite else 0,
            "positions": len(ids),
            "distinct_ids": len(set(ids)),
            "forward_s": seconds,
            **({f"{phase}_s": value for phase, value in facts.seconds.items()} if facts else {}),
        },
        message="" if finite else "logits hold NaN or infinity",
        hint="a constant answer means that a norm, the head or the embedding is dead",
    )


def cache(context: CheckContext) -> Outcome:
    """Cache and batch settings against the declared context, and allocated bytes against the profile's formula."""
    engine = engine_of(context)
    stats, settings, memory = engine.stats(), engine.settings, engine.memory
    tokens = stats.pages_total * settings.page_size
    declared = context.profile.max_position
    dtypes = {"torch.float32": "float32", "torch.bfloat16": "bfloat16", "torch.float16": "float16"}
    dtype = dtypes[str(engine.dtype)]
    kv_dtype = dtype if settings.kv_dtype == "auto" else settings.kv_dtype
    per_token = paged_token_bytes(held_profile(engine).layers, kv_dtype)
    beyond: Mapping[str, object] = {"kv_bytes_beyond_formula": int(memory.kv_bytes - tokens * per_token)}
    if runs_upstream(context):
        beyond = cache_beyond_plan(context)
    return Measured(
        inspected=1,
        values={
            "max_model_len": engine.max_model_len,
            "declared_context": declared,
            "context_share": None if declared is None else engine.max_model_len / declared,
            "cache_tokens": tokens if per_token else None,
            "longest_fits": per_token == 0 or tokens >= engine.max_model_len,
            "all_free": stats.pages_free == stats.pages_total,
            "kv_bytes": memory.kv_bytes,
            **beyond,
            "state_bytes": memory.state_bytes,
            "max_num_seqs": settings.max_num_seqs,
            "batched_tokens": settings.max_num_batched_tokens,
            "batch_holds_all": settings.max_num_batched_tokens >= settings.max_num_seqs,
        },
        hint="give the cache more memory, or take a shorter context",
    )


def tokenizer(context: CheckContext) -> Outcome:
    """Every id has an embedding, end tokens exist and agree, and text comes back from its ids."""
    own, profile = context.target.tokenizer, context.profile
    if own is None and context.tokenizer_fault is not None:
        names = ("ids_beyond_embedding", "vocabulary_beyond_embedding", "num_end_tokens", "end_tokens_outside")
        values = dict.fromkeys((*names, "end_tokens_agree", "texts_changed"))
        return Measured(1, values, message=f"the tokenizer files cannot be used: {context.tokenizer_fault}")
    if own is None:
        return NO_TOKENIZER
    if profile.vocab_size == 0:
        return NotChecked("skip", "the config does not say how large the vocabulary is")
    lost = [text for text in SAMPLES if own.decode(own.encode(text)) != text]
    beyond = [token for text in SAMPLES for token in own.encode(text) if token >= profile.vocab_size]
    ends = set(own.eos_token_ids) | set(profile.eos_token_ids)
    return Measured(
        inspected=len(SAMPLES),
        values={
            "vocabulary": own.vocab_size,
            "embedding_rows": profile.vocab_size,
            "ids_beyond_embedding": len(beyond),
            "vocabulary_beyond_embedding": max(0, own.vocab_size - profile.vocab_size),
            "texts_changed": len(lost),
            "end_tokens": sorted(ends),
            "num_end_tokens": len(ends),
            "end_tokens_outside": sum(not 0 <= token < profile.vocab_size for token in ends),
            "end_tokens_agree": not profile.eos_token_ids or bool(set(own.eos_token_ids) & set(profile.eos_token_ids)),
        },
        message=f"{lost[0]!r} comes back as {own.decode(own.encode(lost[0]))!r}" if lost else "",
        hint="the tokenizer files belong to another model or version, or normalise text on purpose",
    )


def chat_template(context: CheckContext) -> Outcome:
    """The template renders, holds what was said, opens the answer, and a longer conversation extends a shorter one."""
    own = context.target.tokenizer
    if own is None:
        return NO_TOKENIZER
    if not own.has_chat_template:
        return NotChecked("na", "the model has no chat template")
    question = [{"role": "user", "content": "What is the tallest mountain?"}]
    longer = [*question, {"role": "assistant", "content": "Everest."}, {"role": "user", "content": "How tall?"}]
    try:
        rendered = [_render(own, messages) for messages in (question, longer)]
        closed = _render(own, question, add_generation_prompt=False)
    except Day0Error as fault:
        return Measured(1, {"renders": False, "keeps_text": None, "opens_answer": None}, message=str(fault))
    kept = all(
        message["content"] in text
        for messages, text in zip((question, longer), rendered, strict=True)
        for message in messages
    )
    return Measured(
        inspected=len(rendered),
        values={
            "renders": True,
            "keeps_text": kept,
            "opens_answer": rendered[0] != closed and rendered[0].startswith(closed.rstrip()),
            "extends": rendered[1].startswith(closed.rstrip()),
            "tokens": len(own.chat_ids(question)),
        },
        hint="see chat_template.jinja or tokenizer_config.json of the model",
    )


def _render(own: Tokenizer, messages: list[dict[str, str]], *, add_generation_prompt: bool = True) -> str:
    ids = own.chat_ids(messages, add_generation_prompt=add_generation_prompt)
    return own.decode(ids, skip_special_tokens=False)


def health(context: CheckContext) -> Outcome:
    """The server says that it is ready, names its model, and answers what it was asked about."""
    target = context.target
    assert isinstance(target, EndpointTarget)
    status, models = target.get("/health"), target.get("/v1/models")
    served = target.served_model()
    return Measured(
        inspected=2,
        values={
            "health": status.status,
            "models": models.status,
            "model_named": bool(served.get("id")),
            "served_model": served.get("id"),
            "max_model_len": target.max_model_len(),
        },
        message=status.text[:200] if status.status != 200 else "",
        hint=f"is a server listening at {target.name}?",
    )
