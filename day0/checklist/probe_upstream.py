"""Checks that ask something else of a model that transformers runs: it has its own names and its own cache."""

from __future__ import annotations

from math import prod

from day0.checklist.checklist import Measured, NotChecked, Outcome, Where
from day0.checklist.probe_paths import engine_of
from day0.checklist.probe_runtime import RuntimeTarget
from day0.checklist.probe_stored import same_values, spread, stored_tensor
from day0.checklist.prompts import prompt_ids
from day0.checklist.target import CheckContext
from day0.errors import InputError
from day0.runtime.batch import Request, SamplingParams
from day0.runtime.engine.engine import Engine
from day0.runtime.upstream.decoder import UpstreamDecoder
from day0.runtime.upstream.sessions import Sessions


def runs_upstream(context: CheckContext) -> bool:
    """Whether the target is a transformers model in this process."""
    return isinstance(context.target, RuntimeTarget) and context.target.runtime == "upstream"


def headers(context: CheckContext) -> Outcome:
    """Stored tensors by transformers' account of them, where no family says which there should be."""
    try:
        decoder = _decoder(engine_of(context))
    except InputError as fault:  # a tensor is missing or has another shape, and the engine did not start
        values = {"missing": None, "mismatched": None, "unexpected": None, "guessed_family": 0}
        return Measured(1, values, message=str(fault), hint=fault.hint)
    unexpected = decoder.account.unexpected
    return Measured(
        inspected=len(context.files.tensors or ()),
        values={
            "missing": 0,
            "mismatched": 0,
            "unexpected": len(unexpected),
            "guessed_family": 0,
            "examples": list(unexpected[:10]),
        },
        where=Where(tensor=unexpected[0]) if unexpected else None,
        message="by transformers' account: no family of day0 says which tensors there should be",
    )


def values(context: CheckContext, tensors: int) -> Outcome:
    """Parameters that have the name and shape of a stored tensor, against its bytes; at most `tensors` of them."""
    decoder, files = _decoder(engine_of(context)), context.files
    if decoder.account.packing is not None:
        return NotChecked("skip", "transformers unpacks the weights when it loads them: nothing held is as stored")
    held = decoder.upstream.state_dict()
    stored = files.tensors or {}
    names = [name for name, header in stored.items() if name in held and header.shape == tuple(held[name].shape)]
    if not names:
        return NotChecked("skip", "transformers gives its parameters other names and shapes than the files do")
    chosen = list(spread(names, tensors))
    wrong = [name for name in chosen if not same_values(held[name], stored_tensor(files, name))]
    return Measured(
        inspected=len(chosen),
        values={
            "wrong": len(wrong),
            "tensors": len(chosen),
            "of": len(stored),
            "joined_or_renamed": len(stored) - len(names),
        },
        where=Where(tensor=wrong[0]) if wrong else None,
        message=f"{wrong[0]} does not hold what is stored" if wrong else "",
        hint="a tensor was loaded into the wrong place, or changed on the way",
    )


def sizes(context: CheckContext) -> Outcome:
    """Bytes of parameters held against the elements stored, at the width they are held in; tied ones count once."""
    decoder, files = _decoder(engine_of(context)), context.files
    if decoder.account.packing is not None:
        return NotChecked("skip", "transformers unpacks the weights when it loads them: the files do not give the size")
    own = decoder.upstream.state_dict(keep_vars=True)
    parameters = list(decoder.upstream.parameters())
    width = decoder.embed.weight.dtype.itemsize
    expected, seen = 0, set[int]()
    for name, header in (files.tensors or {}).items():
        if name in decoder.account.unexpected or (name in own and id(own[name]) in seen):
            continue
        seen.add(id(own.get(name, header)))
        expected += prod(header.shape) * (own[name].dtype.itemsize if name in own else width)
    held = sum(parameter.nbytes for parameter in parameters)
    return Measured(
        inspected=len(parameters),
        values={
            "held_bytes": held,
            "formula_bytes": expected,
            "difference": held - expected,
            "stored_bytes": files.weight_bytes,
        },
        message="" if held == expected else "something is held twice, or is no parameter of transformers' model",
    )


def cache_beyond_plan(context: CheckContext, *, length: int = 40) -> dict[str, object]:
    """Bytes that a sequence's cache takes beyond the figures the engine plans by, and that stay when it has ended."""
    engine = engine_of(context)
    sessions, cost = engine.cache.storage, _decoder(engine).cost
    assert isinstance(sessions, Sessions)
    length = min(length, engine.max_model_len - 2)
    engine.add(Request("cache-probe", prompt_ids(context, 0, length), SamplingParams(max_tokens=2, ignore_eos=True)))
    try:
        while not engine.step():
            pass
        taken = sessions.bytes_held
    finally:
        engine.abort("cache-probe")
    planned, left = length * cost.per_token + cost.per_sequence, sessions.bytes_held
    return {
        "kv_bytes_beyond_formula": max(0, taken - planned) + left,
        "taken_bytes": taken,
        "planned_bytes": planned,
        "left_bytes": left,
    }


def _decoder(engine: Engine) -> UpstreamDecoder:
    assert isinstance(engine.model, UpstreamDecoder), "asked of a model that transformers runs"
    return engine.model
