"""A target behind a URL: any server with the OpenAI completions API, asked over HTTP."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import httpx
import msgspec

from day0.checklist.target import Answer, Ask, Fate
from day0.errors import InputError

if TYPE_CHECKING:
    from day0.runtime.tokenizer import Tokenizer

CONNECT_SECONDS = 10.0
READ_SECONDS = 300.0  # between two bytes: a long prompt on a slow device is silent for minutes
LONGEST_CONTEXT = 2**24  # a server that claims more tokens than this does not say how long a sequence may be
_REFUSALS = (400, 404, 413, 422)
_OVERLOADS = (429, 503)


@dataclass(frozen=True, slots=True)
class Reply:
    """A plain reply of the server; `status` 0 means that there was none and `text` says why."""

    status: int
    text: str
    content_type: str = ""

    def json(self) -> Any:
        """The parsed body, None where it is not JSON."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Logprobs(msgspec.Struct):
    """The first token of an echoed prompt has none, and some servers leave alternatives out."""

    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Completion(msgspec.Struct):
    """What is read of a reply of /v1/completions, whole or in chunks; whatever else it holds is left alone."""

    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


class EndpointTarget:
    """An OpenAI-compatible server. Prompts go as token ids where it takes them, else as text."""

    kind = "endpoint"

    def __init__(
        self,
        url: str,
        tokenizer: Tokenizer | None,
        *,
        api_key: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        base = _base_url(url)
        self.name = str(base.copy_with(userinfo=b"")).rstrip("/")
        """The address as reports show it: without a password."""
        self.tokenizer = tokenizer
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
        self._http = httpx.Client(base_url=base, headers=headers, timeout=timeout, transport=transport)
        self._served: dict[str, Any] | None = None
        self._takes: dict[str, bool] = {}

    def close(self) -> None:
        self._http.close()

    def lacks(self, need: str) -> str | None:
        if need in ("engine", "process"):
            return f"{self.name} is a server; this check looks inside the in-process runtime"
        if need == "token_ids":
            return f"{self.name} answers with text; this check compares token ids"
        if need == "text" and self.tokenizer is None:
            return "the model comes without a tokenizer"
        if need == "lengths" and self.tokenizer is None and not self._takes_ids():
            return "prompts of a known length need a tokenizer beside the model, or a server that takes token ids"
        return None

    def facts(self) -> dict[str, Any]:
        """Facts of the environment that the server tells; its device is its own affair."""
        return {"device": "remote", "served_model": self.served_model().get("id")}

    def limits(self) -> tuple[str, ...]:
        """What a server is weak at is not known."""
        return ()

    def max_model_len(self) -> int | None:
        value = self.served_model().get("max_model_len")
        return value if type(value) is int and 1 <= value <= LONGEST_CONTEXT else None

    def get(self, path: str) -> Reply:
        """GET a path; a server that cannot be reached is a reply with status 0."""
        try:
            response = self._http.get(path, timeout=CONNECT_SECONDS)
        except httpx.HTTPError as fault:
            return Reply(0, _reason(fault))
        return Reply(response.status_code, response.text)

    def post(self, path: str, body: object) -> Reply:
        """POST JSON, or a raw text where `body` is one (to send what is not JSON)."""
        content = body if isinstance(body, str) else json.dumps(body)
        try:
            response = self._http.post(path, content=content, headers={"Content-Type": "application/json"})
        except httpx.HTTPError as fault:
            return Reply(0, _reason(fault))
        return Reply(response.status_code, response.text, response.headers.get("content-type", ""))

    def served_model(self) -> dict[str, Any]:
        """The first entry of /v1/models, empty where the server gives none."""
        if self._served is None:
            document = self.get("/v1/models").json()
            data = document.get("data") if isinstance(document, dict) else None
            self._served = data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}
        return self._served

    def ask(self, asks: Sequence[Ask], *, concurrency: int) -> list[Answer]:
        with ThreadPoolExecutor(max_workers=concurrency) as pool:
            return list(pool.map(self._ask_one, asks))

    def _ask_one(self, ask: Ask) -> Answer:
        body = self._body(ask)
        started = time.perf_counter()
        try:
            if ask.stream or ask.abandon_after is not None:
                return self._streamed(body, ask, started)
            response = self._http.post("/v1/completions", json=body)
            seconds = time.perf_counter() - started
        except httpx.HTTPError as fault:
            return Answer("failed", _reason(fault), seconds=time.perf_counter() - started)
        if response.status_code != 200:
            return Answer(fate_of(response.status_code), _error_message(response.text), seconds=seconds)
        return replace(_whole_answer(response.text), seconds=seconds, arrivals=(seconds,))

    def _body(self, ask: Ask) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.served_model().get("id", ""),
            "prompt": self._prompt(ask.prompt),
            "max_tokens": ask.max_tokens,
            "temperature": ask.temperature,
        }
        if ask.ignore_eos and self.takes_field("ignore_eos", True):
            body["ignore_eos"] = True
        if ask.seed is not None:
            body["seed"] = ask.seed
        if ask.stop:
            body["stop"] = list(ask.stop)
        if ask.stop_token_ids:
            body["stop_token_ids"] = list(ask.stop_token_ids)
        if ask.logprobs is not None:
            body["logprobs"] = ask.logprobs
        if ask.stream or ask.abandon_after is not None:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body

    def _prompt(self, prompt: tuple[int, ...] | str) -> list[int] | str:
        if isinstance(prompt, str):
            return prompt
        if self.tokenizer is None or self._takes_ids():
            return list(prompt)
        return self.tokenizer.decode(prompt, skip_special_tokens=False)

    def _takes_ids(self) -> bool:
        return self.takes_field("prompt", [1])

    def takes_field(self, field: str, value: object) -> bool:
        """Whether a one-token request with this field is answered; asked once, on a server that answers without."""
        if field not in self._takes:
            plain = {"model": self.served_model().get("id", ""), "prompt": "a", "max_tokens": 1}
            self._takes[field] = self.post("/v1/completions", plain | {field: value}).status == 200
        return self._takes[field]

    def _streamed(self, body: dict[str, Any], ask: Ask, started: float) -> Answer:
        with self._http.stream("POST", "/v1/completions", json=body) as response:
            if response.status_code != 200:
                return Answer(fate_of(response.status_code), _error_message(response.read().decode("utf-8", "replace")))
            return _read_stream(response.iter_lines(), ask.abandon_after, started)


def _base_url(url: str) -> httpx.URL:
    """The address of the server; raises InputError for what is none."""
    try:
        base = httpx.URL(url.rstrip("/").removesuffix("/v1"))
        base.host.encode("idna")
    except (httpx.InvalidURL, UnicodeError) as fault:
        raise InputError(f"not a URL: {fault}", where="--target", hint="for example http://127.0.0.1:8000") from None
    return base


def _completion(text: str) -> _Completion | str:
    """A reply, or why it is none."""
    try:
        return msgspec.json.decode(text, type=_Completion)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as fault:
        return str(fault)


def fate_of(status: int) -> Fate:
    """What an HTTP status says about a request that was not answered."""
    if status in _REFUSALS:
        return "refused"
    return "overloaded" if status in _OVERLOADS else "failed"


def _read_stream(lines: Iterator[str], abandon_after: int | None, started: float) -> Answer:
    """Joins server-sent events; a stream that ends without its end mark has failed."""
    text: list[str] = []
    arrivals: list[float] = []
    finish: str | None = None
    usage = _Usage()
    for line in lines:
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return Answer(
                "done",
                text="".join(text),
                finish_reason=finish,
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
                arrivals=tuple(arrivals),
                seconds=time.perf_counter() - started,
            )
        chunk = _completion(data)
        if isinstance(chunk, str) or chunk.error is not None:
            return Answer("failed", f"a stream chunk is an error or not JSON: {data[:200]}", "".join(text))
        usage = chunk.usage or usage
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            if choice.text:
                text.append(choice.text)
                arrivals.append(time.perf_counter() - started)
        if abandon_after is not None and len(arrivals) >= abandon_after:
            return Answer("done", text="".join(text), finish_reason="abort", arrivals=tuple(arrivals))
    return Answer("failed", "the stream ended without [DONE]", "".join(text), arrivals=tuple(arrivals))


def _whole_answer(body: str) -> Answer:
    document = _completion(body)
    if isinstance(document, str):
        return Answer("failed", f"the reply is no completion ({document}): {body[:200]}")
    if not document.choices or document.choices[0].text is None:
        return Answer("failed", f"the reply has no completion: {body[:200]}")
    choice, usage = document.choices[0], document.usage or _Usage()
    logprobs = choice.logprobs or _Logprobs()
    return Answer(
        "done",
        text=choice.text or "",
        finish_reason=choice.finish_reason,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        logprobs=tuple(math.nan if value is None else value for value in logprobs.token_logprobs or ()),
        top_logprobs=tuple(tops or {} for tops in logprobs.top_logprobs or ()),
    )


def _error_message(body: str) -> str:
    document = Reply(0, body).json()
    error = document.get("error") if isinstance(document, dict) else None
    return str(error.get("message", body)) if isinstance(error, dict) else body[:300]


def _reason(fault: httpx.HTTPError) -> str:
    return f"{type(fault).__name__}: {fault}" if str(fault) else type(fault).__name__
