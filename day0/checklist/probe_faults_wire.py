"""Faults of a server's wire format, each as a change of one reply; the checks of the wire must find and name them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from day0.checklist.client import EndpointTarget, Reply
from day0.checklist.target import CheckContext

Document = dict[str, Any]
Change = Callable[[Mapping[str, Any], Reply], Reply]
"""What a faulty server makes of a request's body and the sound reply to it."""


@dataclass(frozen=True, slots=True)
class WireFault:
    """The probe that must find it, the rule it must name, and the change."""

    probe: str
    rule: str
    change: Change


def whole(edit: Callable[[Document], None], *, chats: bool = False) -> Change:
    """Whole answers edited: those of completions, or of chats."""
    kind = "chat.completion" if chats else "text_completion"

    def change(body: Mapping[str, Any], reply: Reply) -> Reply:
        if reply.status != 200 or body.get("stream"):
            return reply
        document = json.loads(reply.text)
        if document.get("object") != kind:
            return reply
        edit(document)
        return replace(reply, text=json.dumps(document))

    return change


def chunks(edit: Callable[[list[Document]], None]) -> Change:
    """The chunks of a stream edited; what the edit removes from the list is not sent."""

    def change(body: Mapping[str, Any], reply: Reply) -> Reply:
        if reply.status != 200 or not body.get("stream"):
            return reply
        events = [event.removeprefix("data: ") for event in reply.text.split("\n\n") if event.strip()]
        documents = [json.loads(event) for event in events if event != "[DONE]"]
        edit(documents)
        texts = [json.dumps(document) for document in documents] + ["[DONE]"]
        return replace(reply, text="".join(f"data: {text}\n\n" for text in texts))

    return change


def raw_stream(edit: Callable[[Reply], Reply]) -> Change:
    """The bytes of a stream edited."""
    return lambda body, reply: edit(reply) if reply.status == 200 and body.get("stream") else reply


def refusal(edit: Callable[[Reply], Reply]) -> Change:
    """Refusals edited."""
    return lambda body, reply: edit(reply) if 400 <= reply.status < 500 else reply


def only_with(key: str, change: Change) -> Change:
    """A change of replies to requests that have a key."""
    return lambda body, reply: change(body, reply) if key in body else reply


def add_usage(**more: int) -> Callable[[Document], None]:
    """Numbers of the usage that are too high."""

    def edit(document: Document) -> None:
        for key, number in more.items():
            document["usage"][key] += number

    return edit


def set_choice(**values: Any) -> Callable[[Document], None]:
    """Fields of every choice set."""

    def edit(document: Document) -> None:
        for choice in document["choices"]:
            choice.update(values)

    return edit


def _keep_stop(body: Mapping[str, Any], reply: Reply) -> Reply:
    document = json.loads(reply.text)
    document["choices"][0]["text"] += body["stop"][0]
    return replace(reply, text=json.dumps(document))


def _lose_logprob(document: Document) -> None:
    document["choices"][0]["logprobs"]["token_logprobs"].pop()


def _probabilities(document: Document) -> None:
    logprobs = document["choices"][0]["logprobs"]
    logprobs["token_logprobs"] = [0.5 for _ in logprobs["token_logprobs"]]


def _other_ids(documents: list[Document]) -> None:
    for index, document in enumerate(documents):
        document["id"] = f"chunk-{index}"


def _other_object(documents: list[Document]) -> None:
    for document in documents:
        document["object"] = "chat.completion"


def _texts(documents: list[Document]) -> Iterator[tuple[Document, str]]:
    """The places of a stream's text: an object and its key."""
    for document in documents:
        for choice in document["choices"]:
            delta = choice.get("delta")
            place, key = (choice, "text") if delta is None else (delta, "content")
            if place.get(key):
                yield place, key


def _lose_text(documents: list[Document]) -> None:
    place, key = next(_texts(documents))
    place[key] = place[key][1:]


def _cut_character(documents: list[Document]) -> None:
    place, key = next(_texts(documents))
    place[key] = "\ufffd\ufffd" + place[key]


def _no_finish(documents: list[Document]) -> None:
    for document in documents:
        set_choice(finish_reason=None)(document)


def _many_finishes(documents: list[Document]) -> None:
    for document in documents:
        set_choice(finish_reason="length")(document)


def _no_usage(documents: list[Document]) -> None:
    documents[:] = [document for document in documents if document["choices"]]


def _other_usage(documents: list[Document]) -> None:
    if documents[-1].get("usage"):
        documents[-1]["usage"]["completion_tokens"] += 1


def _no_role(documents: list[Document]) -> None:
    for document in documents:
        for choice in document["choices"]:
            choice.get("delta", {}).pop("role", None)


def _control_text(context_end: str) -> Callable[[Document], None]:
    def edit(document: Document) -> None:
        message = document["choices"][0]["message"]
        message["content"] = f"{message['content']}{context_end}"

    return edit


def calls(edit: Callable[[Document], None]) -> Change:
    """The tool calls of whole answers edited."""

    def edit_all(document: Document) -> None:
        for call in document["choices"][0]["message"].get("tool_calls") or ():
            edit(call)

    return whole(edit_all, chats=True)


def _streamed_calls(documents: list[Document]) -> Iterator[Document]:
    for document in documents:
        for choice in document["choices"]:
            yield from choice.get("delta", {}).get("tool_calls") or ()


def _lose_arguments(documents: list[Document]) -> None:
    last = [call for call in _streamed_calls(documents) if call.get("function", {}).get("arguments")][-1]
    last["function"]["arguments"] = last["function"]["arguments"][:-1]


def _no_call_index(documents: list[Document]) -> None:
    for call in _streamed_calls(documents):
        call.pop("index", None)


COMPLETIONS: Mapping[str, WireFault] = {
    "the start token is not counted": WireFault(
        "wire.completions", "prompt-tokens", whole(add_usage(prompt_tokens=-1, total_tokens=-1))
    ),
    "the total forgets the answer": WireFault("wire.completions", "total-tokens", whole(add_usage(total_tokens=-1))),
    "one token too many is counted": WireFault(
        "wire.completions", "completion-tokens", whole(add_usage(completion_tokens=1, total_tokens=1))
    ),
    "every end is a stop": WireFault("wire.completions", "finish-reason", whole(set_choice(finish_reason="stop"))),
    "no reason to end": WireFault("wire.completions", "finish-reason", whole(set_choice(finish_reason=None))),
    "the stop text stays": WireFault("wire.completions", "stop-text", only_with("stop", _keep_stop)),
    "a stop text is told as length": WireFault(
        "wire.completions", "finish-reason", only_with("stop", whole(set_choice(finish_reason="length")))
    ),
    "a log probability is lost": WireFault(
        "wire.completions", "logprobs-count", only_with("logprobs", whole(_lose_logprob))
    ),
    "probabilities for their logarithms": WireFault(
        "wire.completions", "logprobs-values", only_with("logprobs", whole(_probabilities))
    ),
    "one choice where two were asked for": WireFault(
        "wire.completions", "choices", only_with("n", whole(lambda document: document["choices"].pop()))
    ),
    "choices all numbered 0": WireFault("wire.completions", "choices", only_with("n", whole(set_choice(index=0)))),
    "another model's name": WireFault(
        "wire.completions", "model", whole(lambda document: document.update(model="other"))
    ),
}

STREAMS: Mapping[str, WireFault] = {
    "a stream called JSON": WireFault(
        "wire.streams", "content-type", raw_stream(lambda reply: replace(reply, content_type="application/json"))
    ),
    "no end mark": WireFault(
        "wire.streams",
        "done",
        raw_stream(lambda reply: replace(reply, text=reply.text.replace("data: [DONE]\n\n", ""))),
    ),
    "no empty line between events": WireFault(
        "wire.streams", "framing", raw_stream(lambda reply: replace(reply, text=reply.text.replace("}\n\n", "}\n")))
    ),
    "an id per chunk": WireFault("wire.streams", "constant-id", chunks(_other_ids)),
    "chunks that say they are whole": WireFault("wire.streams", "object", chunks(_other_object)),
    "the first character is lost": WireFault("wire.streams", "stream-text", chunks(_lose_text)),
    "a character is cut in two": WireFault("wire.streams", "split-character", chunks(_cut_character)),
    "a stream without reason to end": WireFault("wire.streams", "stream-finish", chunks(_no_finish)),
    "a reason to end in every chunk": WireFault("wire.streams", "stream-finish", chunks(_many_finishes)),
    "no usage in the stream": WireFault("wire.streams", "stream-usage", only_with("stream_options", chunks(_no_usage))),
    "another usage in the stream": WireFault("wire.streams", "stream-usage", chunks(_other_usage)),
    "no role in the first delta": WireFault("wire.streams", "role", chunks(_no_role)),
}

TOOLS: Mapping[str, WireFault] = {
    "arguments as an object": WireFault(
        "wire.tools",
        "tool-arguments",
        calls(lambda call: call["function"].update(arguments=json.loads(call["function"]["arguments"]))),
    ),
    "arguments beyond the schema": WireFault(
        "wire.tools", "tool-arguments", calls(lambda call: call["function"].update(arguments='{"city": "Rome"}'))
    ),
    "a tool that was not offered": WireFault(
        "wire.tools", "tool-calls", calls(lambda call: call["function"].update(name="get_time"))
    ),
    "calls without ids": WireFault("wire.tools", "tool-ids", calls(lambda call: call.update(id=""))),
    "calls that end by stop": WireFault(
        "wire.tools", "tool-calls", whole(set_choice(finish_reason="stop"), chats=True)
    ),
    "the last brace is lost in a stream": WireFault("wire.tools", "stream-tools", chunks(_lose_arguments)),
    "streamed calls without index": WireFault("wire.tools", "stream-tools", chunks(_no_call_index)),
}

REFUSALS: Mapping[str, WireFault] = {
    "nonsense is answered with 500": WireFault(
        "wire.refusals", "refusal-status", refusal(lambda reply: replace(reply, status=500))
    ),
    "nonsense is taken": WireFault(
        "wire.refusals", "refusal-status", refusal(lambda reply: replace(reply, status=200, text="{}"))
    ),
    "a refusal as plain text": WireFault(
        "wire.refusals", "refusal-body", refusal(lambda reply: replace(reply, text="Bad Request"))
    ),
}


def wire_faults(end_text: str) -> Mapping[str, WireFault]:
    """All faults by what is wrong, in words; `end_text` is how the model's end token is spelled."""
    chat = {
        "the template is applied twice": WireFault(
            "wire.chat", "prompt-tokens", whole(add_usage(prompt_tokens=5, total_tokens=5), chats=True)
        ),
        "the end token is shown": WireFault("wire.chat", "control-text", whole(_control_text(end_text), chats=True)),
    }
    return {**COMPLETIONS, **STREAMS, **chat, **TOOLS, **REFUSALS}


def wire_fault(what: str) -> Callable[[CheckContext], AbstractContextManager[CheckContext]]:
    """One fault put between the client and the server of a context."""

    @contextmanager
    def inject(context: CheckContext) -> Iterator[CheckContext]:
        assert isinstance(context.target, EndpointTarget)
        fault = wire_faults("")[what]
        target = copy.copy(context.target)
        sound = context.target.post

        def post(path: str, body: object) -> Reply:
            return fault.change(body if isinstance(body, dict) else {}, sound(path, body))

        target.post = post  # type: ignore[method-assign]
        yield replace(context, target=target)

    return inject
