"""The HTTP client against a server that answers whatever a test tells it to."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from day0.checklist.client import EndpointTarget, fate_of
from day0.checklist.target import Ask
from day0.errors import InputError

Answerer = Callable[[str, Any], tuple[int, str]]
MODELS = json.dumps({"data": [{"id": "m", "max_model_len": 64}]})


class Script:
    """What the server says: `answer(path, body)` gives status and text. `seen` keeps the bodies."""

    def __init__(self) -> None:
        self.answer: Answerer = lambda path, body: (200, MODELS)
        self.seen: list[Any] = []
        self.url = ""


@pytest.fixture
def script() -> Iterator[Script]:
    script = Script()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply(*((200, MODELS) if self.path == "/v1/models" else script.answer(self.path, None)))

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            body = json.loads(raw)
            script.seen.append((dict(self.headers), body))
            self._reply(*script.answer(self.path, body))

        def _reply(self, status: int, text: str) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    script.url = f"http://127.0.0.1:{server.server_port}"
    yield script
    server.shutdown()
    server.server_close()


def completion(text: str = "hi", finish: str = "length", **more: Any) -> str:
    choice = {"text": text, "finish_reason": finish, **more}
    return json.dumps({"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})


def events(*chunks: Any) -> str:
    return "".join(f"data: {chunk if isinstance(chunk, str) else json.dumps(chunk)}\n\n" for chunk in chunks)


def piece(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"text": text, "finish_reason": finish}], "usage": None}


def ask_one(script: Script, ask: Ask | None = None, **options: Any) -> Any:
    target = EndpointTarget(script.url, None, **options)
    (answer,) = target.ask([ask or Ask("hello")], concurrency=1)
    return answer


def test_a_whole_answer(script: Script) -> None:
    script.answer = lambda path, body: (200, completion())
    answer = ask_one(script)
    assert (answer.fate, answer.text, answer.finish_reason) == ("done", "hi", "length")
    assert (answer.prompt_tokens, answer.completion_tokens, answer.token_ids) == (3, 2, None)
    assert answer.output == "hi"


def test_a_streamed_answer_is_joined(script: Script) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    script.answer = lambda path, body: (200, events(piece("a"), piece("b"), piece("", "stop"), usage, "[DONE]"))
    answer = ask_one(script, Ask("hello", stream=True))
    assert (answer.fate, answer.text, answer.finish_reason) == ("done", "ab", "stop")
    assert (answer.completion_tokens, len(answer.arrivals)) == (2, 2)
    assert script.seen[-1][1]["stream"] is True


@pytest.mark.parametrize(
    ("chunks", "reason"),
    [
        ([piece("a")], "without [DONE]"),
        ([], "without [DONE]"),
        (["{broken", "[DONE]"], "not JSON"),
        ([piece("a"), {"error": {"message": "boom"}}, "[DONE]"], "error"),
        ([5, "[DONE]"], "not JSON"),
        ([{"choices": [5]}, "[DONE]"], "not JSON"),
        ([{"choices": [{"text": {"a": 1}}]}, "[DONE]"], "not JSON"),
        ([{"choices": [{"text": "a"}], "usage": [1]}, "[DONE]"], "not JSON"),
        (["[" * 100_000, "[DONE]"], "not JSON"),
    ],
)
def test_a_broken_stream_has_failed(script: Script, chunks: list[Any], reason: str) -> None:
    script.answer = lambda path, body: (200, events(*chunks))
    answer = ask_one(script, Ask("hello", stream=True))
    assert answer.fate == "failed" and reason in answer.message


def test_going_away_ends_the_stream(script: Script) -> None:
    script.answer = lambda path, body: (200, events(piece("a"), piece("b"), piece("c"), "[DONE]"))
    answer = ask_one(script, Ask("hello", stream=True, abandon_after=2))
    assert (answer.fate, answer.text, answer.finish_reason) == ("done", "ab", "abort")


@pytest.mark.parametrize(
    ("status", "fate"), [(400, "refused"), (422, "refused"), (404, "refused"), (429, "overloaded"), (503, "overloaded"),
                         (500, "failed"), (401, "failed"), (302, "failed")]
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_a_status_has_its_fate(script: Script, status: int, fate: str, stream: bool) -> None:
    error = json.dumps({"error": {"message": "too long: 99 of 64"}})
    script.answer = lambda path, body: (status, error)
    answer = ask_one(script, Ask("hello", stream=stream, ignore_eos=False))
    assert (answer.fate, answer.message) == (fate, "too long: 99 of 64")
    assert fate_of(status) == fate


@pytest.mark.parametrize(
    "body",
    ["", "[]", "{}", '{"choices": []}', '{"choices": [{"text": null}]}', "<html>", "null", "5", "[" * 100_000,
     '{"choices": "abc"}', '{"choices": ["a"]}', '{"choices": [{"text": 5}]}',
     '{"choices": [{"text": "a"}], "usage": 1}', '{"choices": [{"text": "a", "logprobs": [1]}]}',
     '{"choices": [{"text": "a", "logprobs": {"token_logprobs": "x"}}]}',
     '{"choices": [{"text": "a", "logprobs": {"token_logprobs": [NaN]}}]}'],
)  # fmt: skip
def test_a_reply_without_a_completion_has_failed(script: Script, body: str) -> None:
    script.answer = lambda path, request: (200, body)
    assert ask_one(script, Ask("hello", ignore_eos=False)).fate == "failed"


def test_a_log_probability_that_is_left_out_is_no_number(script: Script) -> None:
    logprobs = {"token_logprobs": [None, -1.0], "top_logprobs": [None, {"a": -1.0}]}
    script.answer = lambda path, body: (200, completion(logprobs=logprobs))
    answer = ask_one(script, Ask("hello", ignore_eos=False, logprobs=1))
    assert math.isnan(answer.logprobs[0]) and answer.logprobs[1] == -1.0
    assert answer.top_logprobs == ({}, {"a": -1.0})


@pytest.mark.parametrize("reply", ["[" * 100_000, '{"data": [{"id": "m", "max_model_len": "x"}]}', "null"])
@pytest.mark.parametrize("length", ["true", "-5", "0", "99999999999999999999", "1.5"])
def test_a_context_that_cannot_be_is_none(
    script: Script, monkeypatch: pytest.MonkeyPatch, reply: str, length: str
) -> None:
    for said in (reply, f'{{"data": [{{"id": "m", "max_model_len": {length}}}]}}'):
        monkeypatch.setitem(globals(), "MODELS", said)
        assert EndpointTarget(script.url, None).max_model_len() is None


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://a\x01", "http://..", "http://" + "a" * 300, "http://\N{SNOWMAN}"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="not a URL"):
        EndpointTarget(url, None)


def test_a_password_in_the_url_is_sent_and_not_shown(script: Script) -> None:
    script.answer = lambda path, body: (200, completion())
    target = EndpointTarget(script.url.replace("http://", "http://me:secret@") + "/v1", None)
    assert target.name == script.url
    assert target.ask([Ask("x")], concurrency=1)[0].fate == "done"
    assert script.seen[-1][0]["Authorization"].startswith("Basic ")


def test_nobody_listening_is_a_failure_not_an_exception() -> None:
    target = EndpointTarget("http://127.0.0.1:9", None)
    (answer,) = target.ask([Ask("hello")], concurrency=1)
    assert answer.fate == "failed" and "Connect" in answer.message
    assert target.get("/health").status == 0
    assert target.max_model_len() is None


def test_ids_are_sent_where_the_server_takes_them(script: Script) -> None:
    script.answer = lambda path, body: (200, completion())
    ask_one(script, Ask((5, 6)))
    assert script.seen[-1][1]["prompt"] == [5, 6]


def test_fields_the_server_refuses_are_left_out(script: Script) -> None:
    script.answer = lambda path, body: (400, "{}") if "ignore_eos" in body else (200, completion())
    assert ask_one(script).fate == "done"
    assert "ignore_eos" not in script.seen[-1][1]


def test_options_of_an_ask_reach_the_server(script: Script) -> None:
    script.answer = lambda path, body: (200, completion())
    ask_one(script, Ask("x", max_tokens=7, temperature=0.5, seed=3, stop=("a", "b"), logprobs=2), api_key="k")
    headers, body = script.seen[-1]
    wanted = {"max_tokens": 7, "temperature": 0.5, "seed": 3, "stop": ["a", "b"], "logprobs": 2, "model": "m"}
    assert body.items() >= wanted.items()
    assert headers["Authorization"] == "Bearer k"


def test_answers_keep_the_order_of_the_asks(script: Script) -> None:
    script.answer = lambda path, body: (200, completion(text=str(body["prompt"])))
    target = EndpointTarget(script.url, None)
    answers = target.ask([Ask(str(number)) for number in range(20)], concurrency=8)
    assert [answer.text for answer in answers] == [str(number) for number in range(20)]


@pytest.mark.parametrize("url", ["{}", "{}/", "{}/v1", "{}/v1/"])
def test_the_url_may_end_as_people_write_it(script: Script, url: str) -> None:
    script.answer = lambda path, body: (200 if path == "/v1/completions" else 404, completion())
    target = EndpointTarget(url.format(script.url), None)
    assert target.name == script.url
    assert target.ask([Ask("x")], concurrency=1)[0].fate == "done"


def test_what_a_server_cannot_show_has_a_reason(script: Script) -> None:
    target = EndpointTarget(script.url, None)
    for need in ("engine", "process", "token_ids", "text"):
        assert target.lacks(need)
    assert target.lacks("answers") is None and target.lacks("endpoint") is None
    assert target.max_model_len() == 64


def test_lengths_need_ids_or_a_tokenizer(script: Script) -> None:
    script.answer = lambda path, body: (400, "{}") if isinstance(body["prompt"], list) else (200, completion())
    assert EndpointTarget(script.url, None).lacks("lengths")
    script.answer = lambda path, body: (200, completion())
    assert EndpointTarget(script.url, None).lacks("lengths") is None
