"""Phase "text" on a server: the wire format, with expectations from the model's own tokenizer and chat template."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from day0.checklist.checklist import Measured, NotChecked, Outcome
from day0.checklist.client import EndpointTarget, Reply
from day0.checklist.probe_text import stop_text
from day0.checklist.prompts import SENTENCES
from day0.checklist.target import CheckContext
from day0.checklist.wire import (
    Breach,
    Stream,
    joined,
    mapping,
    objects,
    parsed,
    read_stream,
    said,
    stream_breaches,
    usage_breaches,
)
from day0.errors import InputError
from day0.runtime.tokenizer import Tokenizer

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
TOOL_TOKENS = 512  # a call is short, but a model may put white space wherever JSON allows it
MESSAGES = ({"role": "user", "content": "What is the weather in Paris? Answer in one sentence."},)
UNITS = ("celsius", "kelvin")
CITIES = ("Paris", "Oslo", "Lima")
TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "enum": list(CITIES)},
                    "unit": {"type": "string", "enum": list(UNITS)},
                },
                "required": ["city", "unit"],
                "additionalProperties": False,
            },
        },
    },
)
"""Of closed lists alone, so that any model that is held to the schema ends its call soon."""


def completions(context: CheckContext, *, prompts: int = 2, max_tokens: int = 12) -> Outcome:
    """Whole completions: usage, finish reasons, stop texts, log probabilities, several choices."""
    target = _endpoint(context)
    tokenizer = target.tokenizer
    breaches: list[Breach] = []
    inspected = 0
    for prompt in SENTENCES[:prompts]:
        body = _body(target, max_tokens) | {"prompt": prompt}
        known = len(tokenizer.encode(prompt, add_special_tokens=True)) if tokenizer is not None else None
        plain, found = _document(target, COMPLETIONS, body, "text_completion")
        breaches += [*found, *_answer_breaches(plain, body, known)]
        text = str(_first(plain).get("text") or "")
        breaches += _logprob_breaches(target, body)
        stop = stop_text(text)
        if stop is not None:
            breaches += _stop_breaches(target, body | {"stop": [stop]}, text[: text.index(stop)])
        breaches += _choice_breaches(target, body, known)
        inspected += 3 + (stop is not None)
    return _measured(inspected, breaches)


def streams(context: CheckContext, *, prompts: int = 2, max_tokens: int = 12) -> Outcome:
    """Streams of completions and, where there is a template, chats: their framing, and the whole answer in them."""
    target = _endpoint(context)
    breaches: list[Breach] = []
    inspected = 0
    for prompt in SENTENCES[:prompts]:
        body = _body(target, max_tokens) | {"prompt": prompt}
        breaches += _streamed_breaches(target, COMPLETIONS, body, "text_completion")
        inspected += 1
    if target.tokenizer is not None and target.tokenizer.has_chat_template:
        body = _body(target, max_tokens) | {"messages": MESSAGES}
        breaches += _streamed_breaches(target, CHAT, body, "chat.completion.chunk")
        inspected += 1
    return _measured(inspected, breaches)


def chat(context: CheckContext, *, max_tokens: int = 12) -> Outcome:
    """Whole chats of one turn and of several: their prompt by the template, their usage, no control tokens shown."""
    target, tokenizer = _endpoint(context), context.target.tokenizer
    if tokenizer is None or not tokenizer.has_chat_template:
        return NotChecked("na", "the model has no chat template")
    talk = (*MESSAGES, {"role": "assistant", "content": "Sunny."}, {"role": "user", "content": "And tomorrow?"})
    breaches: list[Breach] = []
    inspected = 0
    for messages in (MESSAGES, talk):
        try:
            known = len(tokenizer.chat_ids(messages))
        except InputError:
            continue  # a template may refuse roles; what it refuses is no expectation
        body = _body(target, max_tokens) | {"messages": messages}
        document, found = _document(target, CHAT, body, "chat.completion")
        breaches += [*found, *_answer_breaches(document, body, known)]
        text = said(mapping(_first(document).get("message")))
        shown = [spelled for spelled in _control_texts(tokenizer) if spelled in text]
        breaches += [Breach("control-text", f"{shown[0]!r} in {text!r:.60}")] if shown else []
        inspected += 1
    return _measured(inspected, breaches)


def tools(context: CheckContext, *, max_tokens: int = TOOL_TOKENS) -> Outcome:
    """An answer that must call a tool, whole and streamed: its calls, ids and arguments against the schema."""
    target, tokenizer = _endpoint(context), context.target.tokenizer
    if tokenizer is None or not tokenizer.has_chat_template:
        return NotChecked("na", "the model has no chat template")
    if tokenizer.chat_text(MESSAGES, tools=TOOLS) == tokenizer.chat_text(MESSAGES):
        return NotChecked("na", "the model's chat template shows it no tools")
    body = {"model": target.served_model().get("id", ""), "messages": MESSAGES, "max_tokens": max_tokens}
    body |= {"temperature": 0, "tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
    reply = target.post(CHAT, body)
    if reply.status in (400, 422, 501):
        return NotChecked("skip", f"the server does not force calls: {reply.text[:200]}")
    document = parsed(reply.text) or {}
    calls = objects(mapping(_first(document).get("message")).get("tool_calls"))
    breaches = [*_status_breaches(reply, document), *_call_breaches(calls, _first(document).get("finish_reason"))]
    known = len(tokenizer.chat_ids(MESSAGES, tools=TOOLS))
    if mapping(document.get("usage")).get("prompt_tokens") != known:
        breaches.append(Breach("prompt-tokens", f"with tools, {known} by the model's own template"))
    streamed = target.post(CHAT, body | STREAMED)
    breaches += _streamed_call_breaches(read_stream(streamed.content_type, streamed.text), calls)
    return _measured(2, breaches)


def refusals(context: CheckContext) -> Outcome:
    """Nonsense of either endpoint is refused with 4xx and an error object, and the next request is answered."""
    target = _endpoint(context)
    good = {"model": target.served_model().get("id", ""), "max_tokens": 1}
    text, talk = good | {"prompt": "a"}, good | {"messages": MESSAGES}
    nonsense: dict[str, tuple[str, object]] = {
        "not JSON": (COMPLETIONS, "{"),
        "a list": (COMPLETIONS, []),
        "an unknown model": (COMPLETIONS, text | {"model": "no-such-model"}),
        "max_tokens -1": (COMPLETIONS, text | {"max_tokens": -1}),
        "temperature as text": (COMPLETIONS, text | {"temperature": "hot"}),
        "top_p 7": (COMPLETIONS, text | {"top_p": 7}),
        "messages as text": (CHAT, talk | {"messages": "hello"}),
        "a message without role": (CHAT, talk | {"messages": [{"content": "hello"}]}),
        "tools as text": (CHAT, talk | {"tools": "hammer"}),
        "a tool that is not offered": (
            CHAT,
            talk | {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "absent"}}},
        ),
    }
    breaches = [
        breach for what, (path, body) in nonsense.items() for breach in _refusal_breaches(what, target.post(path, body))
    ]
    if target.post(COMPLETIONS, text).status != 200:
        breaches.append(Breach("status", "a sound request after nonsense is not answered"))
    return _measured(len(nonsense), breaches)


def _endpoint(context: CheckContext) -> EndpointTarget:
    assert isinstance(context.target, EndpointTarget)
    return context.target


def _measured(inspected: int, breaches: Sequence[Breach]) -> Outcome:
    rules = list(dict.fromkeys(breach.rule for breach in breaches))
    return Measured(
        inspected,
        {"breaches": len(breaches), "rules": rules},
        message="; ".join(dict.fromkeys(map(str, breaches)))[:600],
        hint="clients of the OpenAI API rely on it; the rules are in docs/checklist.md",
    )


def _body(target: EndpointTarget, max_tokens: int) -> dict[str, Any]:
    body = {"model": target.served_model().get("id", ""), "max_tokens": max_tokens, "temperature": 0}
    return body | ({"ignore_eos": True} if target.takes_field("ignore_eos", True) else {})


def _first(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(iter(objects(document.get("choices"))), {})


def _status_breaches(reply: Reply, document: Mapping[str, Any]) -> list[Breach]:
    return [] if reply.status == 200 and document else [Breach("status", f"{reply.status}: {reply.text[:80]!r}")]


def _document(
    target: EndpointTarget, path: str, body: Mapping[str, Any], kind: str
) -> tuple[Mapping[str, Any], list[Breach]]:
    """A whole answer, and what is wrong with its outside; an empty one where there was none."""
    reply = target.post(path, body)
    document = parsed(reply.text) or {}
    breaches = _status_breaches(reply, document)
    if breaches:
        return {}, breaches
    if document.get("object") != kind:
        breaches.append(Breach("object", f"{document.get('object')} instead of {kind}"))
    if document.get("model") != body["model"]:
        breaches.append(Breach("model", f"{document.get('model')} answers for {body['model']}"))
    return document, breaches


def _answer_breaches(document: Mapping[str, Any], body: Mapping[str, Any], known: int | None) -> Iterator[Breach]:
    """Usage and reason to end of an answer; nothing of one that did not come."""
    if not document:
        return
    finish, most = _first(document).get("finish_reason"), body["max_tokens"]
    yield from usage_breaches(document.get("usage"), prompt_tokens=known, max_tokens=most, finish=finish)
    if finish not in ("length", "stop") or ("ignore_eos" in body and finish != "length"):
        yield Breach("finish-reason", f"{finish} after {most} tokens allowed")


def _logprob_breaches(target: EndpointTarget, body: Mapping[str, Any]) -> Iterator[Breach]:
    reply = target.post(COMPLETIONS, {**body, "logprobs": 2})
    if 400 <= reply.status < 500:
        return  # log probabilities are an offer, not a duty
    document = parsed(reply.text) or {}
    found = mapping(_first(document).get("logprobs"))
    values, tokens, tops = (found.get(key) or [] for key in ("token_logprobs", "tokens", "top_logprobs"))
    counted = mapping(document.get("usage")).get("completion_tokens")
    if not len(values) == len(tokens) == len(tops) == counted:
        yield Breach(
            "logprobs-count", f"{len(values)} values, {len(tokens)} tokens, {len(tops)} lists; usage {counted}"
        )
    if any(not isinstance(value, (int, float)) or not value <= 0 for value in values):
        yield Breach("logprobs-values", f"{values[:3]}")


def _stop_breaches(target: EndpointTarget, body: Mapping[str, Any], wanted: str) -> Iterator[Breach]:
    choice = _first(parsed(target.post(COMPLETIONS, body).text) or {})
    if choice.get("text") != wanted:
        yield Breach("stop-text", f"{choice.get('text')!r:.60} instead of {wanted!r:.60}")
    if choice.get("finish_reason") != "stop":
        yield Breach("finish-reason", f"{choice.get('finish_reason')} at a stop text")


def _choice_breaches(target: EndpointTarget, body: Mapping[str, Any], known: int | None) -> Iterator[Breach]:
    reply = target.post(COMPLETIONS, {**body, "n": 2})
    if 400 <= reply.status < 500:
        return  # some servers give one choice at a time, and say so
    document = parsed(reply.text) or {}
    numbers = [choice.get("index") for choice in objects(document.get("choices"))]
    if sorted(numbers, key=str) != [0, 1]:
        yield Breach("choices", f"numbered {numbers} where two were asked for")
        return
    ends = {choice.get("finish_reason") for choice in objects(document.get("choices"))}
    finish = "length" if ends == {"length"} else "stop"
    most = body["max_tokens"]
    yield from usage_breaches(document.get("usage"), prompt_tokens=known, max_tokens=most, finish=finish, choices=2)


def _streamed_breaches(target: EndpointTarget, path: str, body: Mapping[str, Any], kind: str) -> Iterator[Breach]:
    whole = target.post(path, body)
    document = parsed(whole.text) or {}
    yield from _status_breaches(whole, document)
    for more in (STREAMED, {"stream": True}):
        reply = target.post(path, {**body, **more})
        stream = read_stream(reply.content_type, reply.text)
        if reply.status != 200:
            yield Breach("status", f"{reply.status} to a stream: {reply.text[:80]!r}")
            continue
        asked = more is STREAMED
        yield from stream_breaches(stream, document, kind=kind, with_usage=asked, chat=path == CHAT)


def _control_texts(tokenizer: Tokenizer) -> tuple[str, ...]:
    """How the tokens that end an answer are spelled."""
    spelled = (tokenizer.decode([token], skip_special_tokens=False) for token in tokenizer.eos_token_ids)
    return tuple(text for text in spelled if len(text) > 2)


def _call_breaches(calls: Sequence[Mapping[str, Any]], finish: object) -> Iterator[Breach]:
    names = [mapping(call.get("function")).get("name") for call in calls]
    offered = [str(mapping(tool["function"])["name"]) for tool in TOOLS]
    if not names or any(name not in offered for name in names):
        yield Breach("tool-calls", f"calls {names} where {offered} were offered")
    if finish != "tool_calls":
        yield Breach("tool-calls", f"ended by {finish}")
    ids = [call.get("id") for call in calls]
    if len(set(ids)) < len(ids) or not all(isinstance(name, str) and name for name in ids):
        yield Breach("tool-ids", f"{ids}")
    for call in calls:
        arguments = mapping(call.get("function")).get("arguments")
        found = parsed(arguments)
        if found is None or set(found) != {"city", "unit"} or found["city"] not in CITIES or found["unit"] not in UNITS:
            yield Breach("tool-arguments", f"{arguments!r:.80} does not fit the schema")


def _streamed_call_breaches(stream: Stream, calls: Sequence[Mapping[str, Any]]) -> Iterator[Breach]:
    yield from stream.breaches
    choice = joined(stream)
    functions = [mapping(call.get("function")) for call in calls]
    wanted = [(str(one.get("name")), _canonical(one.get("arguments"))) for one in functions]
    found = [(call["name"], _canonical(call["arguments"])) for _, call in sorted(choice.calls.items())]
    if found != wanted or sorted(choice.calls) != list(range(len(wanted))):
        yield Breach("stream-tools", f"{found} at {sorted(choice.calls)} instead of {wanted}")
    if any(not call["id"] for call in choice.calls.values()):
        yield Breach("tool-ids", "a streamed call has none")
    if [reason for _, reason in choice.finishes] != ["tool_calls"]:
        yield Breach("tool-calls", f"a stream ended by {choice.finishes}")


def _canonical(arguments: object) -> str:
    """Arguments as one spelling of their JSON; what is no JSON, as it is."""
    document = parsed(arguments)
    return str(arguments) if document is None else json.dumps(document, sort_keys=True)


def _refusal_breaches(what: str, reply: Reply) -> Iterator[Breach]:
    if not 400 <= reply.status < 500:
        yield Breach("refusal-status", f"{what} gets {reply.status}")
        return
    document = parsed(reply.text) or {}
    error = mapping(document.get("error")) or document
    if not isinstance(error.get("message"), str) or not isinstance(error.get("type"), str):
        yield Breach("refusal-body", f"{what} gets {reply.text[:80]!r}")
