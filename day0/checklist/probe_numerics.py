"""Phase "numerics": every road through the runtime gives the same numbers, and they are a reference's."""

from __future__ import annotations

from itertools import takewhile
from math import prod
from pathlib import Path

import psutil
import torch
from torch import Tensor

from day0.checklist.checklist import Measured, NotChecked, Outcome, Where
from day0.checklist.figures import largest, share
from day0.checklist.probe_paths import (
    PathErrors,
    engine_of,
    first_difference,
    forward_outputs,
    logit_allowance,
    rounding_noise,
    traced_outputs,
)
from day0.checklist.probe_upstream import runs_upstream
from day0.checklist.prompts import prompt_ids, sentence_ids
from day0.checklist.target import Answer, Ask, CheckContext
from day0.errors import CannotSay
from day0.numerics.metrics import greedy_margin, kl_divergence, top_k_agreement
from day0.numerics.trace_file import StoredTrace, read_trace
from day0.profile.parameters import count_parameters
from day0.runtime.upstream.decoder import UpstreamDecoder
from day0.runtime.upstream.reference import load_reference, reference_trace


def cached(context: CheckContext, *, length: int = 40) -> Outcome:
    """Token by token through the cache against one forward over all tokens."""
    return _chunk_errors(context, length, [1], "cache or state is written or read at the wrong place")


def chunked(context: CheckContext, *, length: int = 72, chunks: list[int] | None = None) -> Outcome:
    """Prefill in chunks around every boundary (page, convolution, recurrence) against one forward."""
    page = engine_of(context).settings.page_size
    sizes = chunks or sorted({2, 3, page - 1, page, page + 1, 2 * page + 1, 64})
    return _chunk_errors(context, length, sizes, "what a chunk leaves behind for the next one is wrong")


def _chunk_errors(context: CheckContext, length: int, chunks: list[int], hint: str) -> Outcome:
    engine = engine_of(context)
    ids = prompt_ids(context, 3, min(length, engine.max_model_len))
    whole = forward_outputs(engine, ids)
    errors = PathErrors(rounding_noise(engine, ids, forward_outputs))
    used = [chunk for chunk in chunks if 0 < chunk < len(ids)]
    for chunk in used:
        errors.compare(f"chunks of {chunk}", forward_outputs(engine, ids, chunk), whole)
    return errors.measured(context.profile, hint, length=len(ids), chunks=used)


def causal(context: CheckContext, *, lengths: list[int] | None = None) -> Outcome:
    """What follows a token changes nothing before it: prefixes of every boundary length against the whole prompt."""
    engine = engine_of(context)
    page = engine.settings.page_size
    sizes = lengths or sorted({1, 2, page - 1, page, page + 1, 2 * page, 2 * page + 1, 63, 64, 65})
    sizes = [size for size in sizes if 0 < size < engine.max_model_len]
    ids = prompt_ids(context, 4, sizes[-1] + 1)
    whole = forward_outputs(engine, ids)
    errors = PathErrors(rounding_noise(engine, ids, forward_outputs))
    for size in sizes:
        prefix = {name: tensor[:size] for name, tensor in whole.items()}
        errors.compare(f"length {size}", forward_outputs(engine, ids[:size]), prefix)
    return errors.measured(context.profile, "a mask lets the future in, or a length is handled apart", lengths=sizes)


def batched(context: CheckContext, *, requests: int = 5, max_tokens: int = 12) -> Outcome:
    """Prompts of different lengths in one batch against each alone: same tokens, same log probabilities."""
    engine = engine_of(context)
    prompts = [sentence_ids(context, index) for index in range(requests - 1)]
    prompts.append(prompt_ids(context, 5, min(3 * engine.settings.page_size + 1, engine.max_model_len - max_tokens)))
    asks = [Ask(prompt, max_tokens, logprobs=0) for prompt in prompts]
    together = context.target.ask(asks, concurrency=len(asks))
    alone = context.target.ask(asks, concurrency=1)
    parted: list[int] = []
    apart: list[float] = []
    over: list[float] = []
    for prompt, batch, single in zip(prompts, together, alone, strict=True):
        one, two = batch.token_ids or (), single.token_ids or ()
        if batch.fate != "done" or first_difference(engine, prompt, two, one) is not None:
            parted.append(len(prompt))
        apart.append(_logprobs_apart(batch, single))
        over.append(share(apart[-1], 2 * logit_allowance(engine, prompt, engine.forward(prompt)[-1])))
    return Measured(
        inspected=len(asks),
        values={
            "different": len(parted),
            "worst_logprob_difference": largest(apart),
            "logprob_over_tolerance": largest(over),
        },
        where=Where(length=parted[0]) if parted else None,
        message=f"a prompt of {parted[0]} tokens gets another answer in company" if parted else "",
        hint="one sequence of a batch reads or writes what belongs to another",
    )


def _logprobs_apart(one: Answer, two: Answer) -> float:
    """The largest difference of log probabilities as far as the answers are the same."""
    pairs = zip(one.token_ids or (), two.token_ids or (), one.logprobs, two.logprobs, strict=False)
    alike = takewhile(lambda pair: pair[0] == pair[1], pairs)
    return largest(abs(mine - other) for _, _, mine, other in alike)


def reference(context: CheckContext, *, length: int = 32, top_k: int = 5) -> Outcome:
    """Every traced tensor and the logits against the reference: transformers in float32, or a stored trace."""
    engine = engine_of(context)
    if context.reference == "runtime":
        return NotChecked(
            "skip",
            "the runtime is its own reference here: nothing independent to compare with",
            hint="--reference transformers where it knows the model, or --reference FILE with a stored trace",
        )
    if context.reference == "transformers" and runs_upstream(context):
        return NotChecked(
            "skip",
            "transformers runs the model itself here: nothing independent to compare with",
            hint="--reference FILE takes a stored trace of another implementation",
        )
    wanted = _reference_trace(context, min(length, engine.max_model_len))
    if isinstance(wanted, NotChecked):
        return wanted
    found = traced_outputs(engine, wanted.token_ids)
    shared = {name: tensor for name, tensor in wanted.tensors.items() if name in found}
    errors = PathErrors(rounding_noise(engine, wanted.token_ids, traced_outputs))
    errors.compare(context.reference, found, shared)
    layers = {int(name.split(".")[1]) for name in shared if name.startswith("layers.")}
    return errors.measured(
        context.profile,
        "the first deviation in execution order is where to look; what follows inherits it",
        length=len(wanted.token_ids),
        layers_not_compared=context.profile.num_layers - len(layers),
        logits_compared="logits" in shared,
        only_in_reference=len(wanted.tensors) - len(shared),
        **_logit_values(found["logits"], wanted.tensors["logits"], top_k, errors.noise.tolerance("logits")),
    )


def _logit_values(candidate: Tensor, wanted: Tensor, top_k: int, tolerance: float) -> dict[str, object]:
    if candidate.shape != wanted.shape:
        return {"worst_kl": None, "top_k_agreement": None, "greedy_disagreements": None}
    candidate = candidate.float().cpu()
    wanted = wanted.float().cpu()
    differ = candidate.argmax(dim=-1) != wanted.argmax(dim=-1)
    near_tie = greedy_margin(wanted) <= 4 * tolerance * wanted.square().mean(dim=-1).sqrt()
    return {
        "worst_kl": float(kl_divergence(candidate, wanted).max()),
        "top_k_agreement": top_k_agreement(candidate, wanted, top_k),
        "greedy_disagreements": int((differ & ~near_tie).sum()),
    }


def _reference_trace(context: CheckContext, length: int) -> StoredTrace | NotChecked:
    if context.reference != "transformers":
        return read_trace(Path(context.reference))
    model = _upstream(context)
    if isinstance(model, NotChecked):
        return model
    ids = prompt_ids(context, 6, length)
    return StoredTrace(ids, reference_trace(model, ids, context.files.id))


def _upstream(context: CheckContext) -> UpstreamDecoder | NotChecked:
    """The transformers model, where it knows the architecture and float32 weights fit in memory."""
    files, profile = context.files, context.profile
    if files.folder is None or files.tensors is None:
        return NotChecked("skip", "the reference needs the model's files in a folder")
    known = profile.family is not None
    stored = sum(prod(header.shape) for header in files.tensors.values())
    needed = 4 * (count_parameters(profile).total if known else stored)
    free = psutil.virtual_memory().available
    if needed > 0.8 * free:
        message = f"a float32 copy needs {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free"
        return NotChecked("skip", message)
    try:
        return load_reference(files, profile)
    except CannotSay as fault:
        return NotChecked("skip", str(fault), hint="--reference FILE takes a stored trace of another implementation")


def endpoint(context: CheckContext, *, prompts: int = 6) -> Outcome:
    """First tokens of a server against a reference's: log probability of the greedy choice, and its text."""
    own = context.target.tokenizer
    if own is None:
        return NotChecked("skip", "comparing a server needs the model's tokenizer")
    model = _upstream(context)
    if isinstance(model, NotChecked):
        return model
    prompt_list = [sentence_ids(context, index) for index in range(prompts)]
    answers = context.target.ask([Ask(ids, max_tokens=1, logprobs=1) for ids in prompt_list], concurrency=1)
    apart: list[float] = []
    differ, faults = 0, []
    for ids, answer in zip(prompt_list, answers, strict=True):
        if answer.fate != "done" or not answer.logprobs:
            faults.append(answer.message or "the server gives no log probabilities")
            continue
        row = torch.log_softmax(reference_trace(model, ids)["logits"][-1].double(), dim=-1)
        apart.append(abs(float(row.max()) - answer.logprobs[0]))
        tie = float(greedy_margin(row[None])[0]) <= 1e-2
        differ += not tie and own.decode([int(row.argmax())]) != answer.text
    return Measured(
        inspected=len(apart),
        values={"worst_logprob_difference": largest(apart), "other_first_token": differ, "not_compared": len(faults)},
        message=faults[0] if faults else "",
        hint="another dtype explains a few hundredths; more is another model, template or start token",
    )
