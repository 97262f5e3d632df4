"""What the OpenAI wire format asks of a reply, as rules on the bytes that came: no server is asked here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

RULES: Mapping[str, str] = {
    "status": "a sound request is answered with 200 and a JSON object, or a stream",
    "object": "`object` says what the reply is",
    "model": "`model` is the model that was asked",
    "prompt-tokens": "`usage.prompt_tokens` is what the model's own tokenizer and template make of the prompt",
    "total-tokens": "`usage.total_tokens` is the sum of both parts",
    "completion-tokens": "`usage.completion_tokens` is the tokens allowed where `length` ended the answer",
    "finish-reason": "`finish_reason` says why the answer ended",
    "stop-text": "a stop text ends the answer before it",
    "logprobs-count": "one log probability per token, as many as `usage` counts",
    "logprobs-values": "log probabilities are numbers of at most 0, each among its alternatives",
    "choices": "`n` choices, numbered from 0",
    "control-text": "no control token of the model is spelled out in an answer",
    "content-type": "a stream is text/event-stream",
    "framing": "a stream is events of one JSON object each, an empty line after each",
    "done": "a stream ends with one [DONE]",
    "constant-id": "all chunks of a stream have one id",
    "stream-text": "the deltas of a stream join to the whole answer",
    "split-character": "no character is cut in two by a stream",
    "stream-finish": "the last delta of a stream, and no other, has the finish reason of the whole answer",
    "stream-usage": "a stream that was asked for its usage ends with that of the whole answer",
    "role": "the first delta of a chat, and no other, has the role",
    "tool-calls": "an answer that must call a tool calls one that was offered, and ends with `tool_calls`",
    "tool-ids": "every call has an id of its own",
    "tool-arguments": "arguments of a call are a text, JSON, and fit the schema of the tool",
    "stream-tools": "the deltas of a stream join to the calls of the whole answer",
    "refusal-status": "nonsense is the caller's fault: 4xx",
    "refusal-body": "a refusal is an error object with a message and a type",
}
"""By name, what is right. A breach is of one of these."""


@dataclass(frozen=True, slots=True)
class Breach:
    """One rule that a reply does not keep."""

    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Stream:
    """The chunks of a stream that are JSON objects, and the breaches met on the way to them."""

    chunks: tuple[Mapping[str, Any], ...]
    breaches: tuple[Breach, ...] = ()


@dataclass(slots=True)
class StreamedChoice:
    """The first choice of a stream, joined. `calls` are tool calls by index."""

    text: str = ""
    finishes: list[tuple[int, str]] = field(default_factory=list)
    roles: list[int] = field(default_factory=list)
    last: int = -1
    calls: dict[int, dict[str, str]] = field(default_factory=dict)


def read_stream(content_type: str, text: str) -> Stream:
    """Server-sent events taken apart (WHATWG HTML, section 9.2), comments passed over."""
    breaches: list[Breach] = []
    if not content_type.startswith("text/event-stream"):
        breaches.append(Breach("content-type", repr(content_type)))
    text = text.replace("\r\n", "\n")
    if not text.endswith("\n\n"):
        breaches.append(Breach("framing", "no empty line after the last event"))
    chunks: list[Mapping[str, Any]] = []
    events = list(_events(text))
    for data in events:
        if data == "[DONE]":
            continue
        chunk = parsed(data)
        if chunk is None:
            breaches.append(Breach("framing", f"an event is no JSON object: {data[:80]!r}"))
        else:
            chunks.append(chunk)
    if events.count("[DONE]") != 1 or events[-1] != "[DONE]":
        breaches.append(
            Breach("done", f"{events.count('[DONE]')} of them, last is {events[-1][:40]!r}" if events else "no event")
        )
    return Stream(tuple(chunks), tuple(breaches))


def _events(text: str) -> Iterator[str]:
    for block in text.split("\n\n"):
        lines = [line.removeprefix("data:").strip(" ") for line in block.split("\n") if line.startswith("data:")]
        if lines:
            yield "\n".join(lines)


def parsed(text: object) -> Mapping[str, Any] | None:
    """A JSON object, None for all else."""
    try:
        document = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def objects(value: object) -> list[Mapping[str, Any]]:
    """The objects of what should be a list of them."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def mapping(value: object) -> Mapping[str, Any]:
    """What should be an object; an empty one for all else."""
    return value if isinstance(value, dict) else {}


def said(message: Mapping[str, Any]) -> str:
    """The text of a chat message or delta, its reasoning first."""
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    return f"{reasoning}{message.get('content') or ''}"


def joined(stream: Stream) -> StreamedChoice:
    """The deltas of the first choice put together."""
    choice = StreamedChoice()
    reasoning, content = "", ""
    for index, chunk in enumerate(stream.chunks):
        for part in objects(chunk.get("choices")):
            if part.get("index", 0) != 0:
                continue
            choice.last = index
            delta = mapping(part.get("delta"))
            reasoning += str(delta.get("reasoning_content") or delta.get("reasoning") or "")
            content += str(part.get("text") or delta.get("content") or "")
            if part.get("finish_reason") is not None:
                choice.finishes.append((index, str(part["finish_reason"])))
            if delta.get("role") is not None:
                choice.roles.append(index)
            _join_calls(choice.calls, objects(delta.get("tool_calls")))
    choice.text = reasoning + content
    return choice


def _join_calls(calls: dict[int, dict[str, str]], deltas: Sequence[Mapping[str, Any]]) -> None:
    for delta in deltas:
        place = delta.get("index")
        call = calls.setdefault(place if isinstance(place, int) else -1, {"name": "", "arguments": "", "id": ""})
        function = mapping(delta.get("function"))
        call["id"] += str(delta.get("id") or "")
        for key in ("name", "arguments"):
            call[key] += str(function.get(key) or "")


def usage_breaches(
    usage: object, *, prompt_tokens: int | None, max_tokens: int, finish: object, choices: int = 1
) -> Iterator[Breach]:
    """The arithmetic of one reply's `usage`."""
    numbers = mapping(usage)
    prompt, answer = numbers.get("prompt_tokens"), numbers.get("completion_tokens")
    if prompt_tokens is not None and prompt != prompt_tokens:
        yield Breach("prompt-tokens", f"{prompt} reported, {prompt_tokens} by the model's own files")
    if type(prompt) is not int or type(answer) is not int or numbers.get("total_tokens") != prompt + answer:
        yield Breach("total-tokens", f"{numbers.get('total_tokens')} reported for {prompt} and {answer}")
    most = choices * max_tokens
    if type(answer) is not int or answer > most or (finish == "length" and answer != most):
        yield Breach("completion-tokens", f"{answer} reported, ended by {finish}, {most} allowed")


def stream_breaches(
    stream: Stream, whole: Mapping[str, Any], *, kind: str, with_usage: bool, chat: bool
) -> Iterator[Breach]:
    """A stream against the whole answer to the same request; `kind` is what `object` must say."""
    yield from stream.breaches
    if not stream.chunks:
        return
    ids = {str(chunk.get("id")) for chunk in stream.chunks}
    if len(ids) != 1 or ids <= {"None", ""}:
        yield Breach("constant-id", f"{len(ids)} ids: {', '.join(sorted(ids)[:3])}")
    kinds = {str(chunk.get("object")) for chunk in stream.chunks}
    if kinds != {kind}:
        yield Breach("object", f"{', '.join(sorted(kinds))} instead of {kind}")
    models = {str(chunk.get("model")) for chunk in stream.chunks}
    if models != {str(whole.get("model"))}:
        yield Breach("model", f"{', '.join(sorted(models))} in the stream, {whole.get('model')} in the whole answer")
    choice, (first,) = joined(stream), objects(whole.get("choices"))[:1] or ({},)
    text = said(mapping(first.get("message"))) if chat else str(first.get("text") or "")
    if choice.text != text:
        cut = choice.text.count(REPLACEMENT) > text.count(REPLACEMENT)
        yield Breach("split-character" if cut else "stream-text", f"{choice.text!r:.60} instead of {text!r:.60}")
    if choice.finishes != [(choice.last, str(first.get("finish_reason")))]:
        reasons = [reason for _, reason in choice.finishes]
        yield Breach("stream-finish", f"{reasons or 'none'} where the whole answer has {first.get('finish_reason')}")
    if chat and choice.roles != [0]:
        yield Breach("role", f"in {len(choice.roles)} deltas")
    if with_usage:
        last = mapping(stream.chunks[-1].get("usage"))
        wanted = mapping(whole.get("usage"))
        for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
            if last.get(key) != wanted.get(key):
                yield Breach("stream-usage", f"{key} is {last.get(key)}, {wanted.get(key)} in the whole answer")
                break
