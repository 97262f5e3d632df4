import re

import httpx
import openai
import pytest

from day0.runtime.engine.sequence import QueueFull
from day0.runtime.server.errors import as_api_error

CHAT = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def http(llama):
    with llama.http() as client:
        yield client


@pytest.mark.parametrize(
    ("path", "body", "param", "code"),
    [
        ("completions", {}, "prompt", "missing_required_parameter"),
        ("completions", {"prompt": "x", "max_tokens": "5"}, "max_tokens", "invalid_value"),
        ("completions", {"prompt": "x", "max_tokens": 0}, "max_tokens", "invalid_value"),
        ("completions", {"prompt": "x", "max_tokens": True}, "max_tokens", "invalid_value"),
        ("completions", {"prompt": "x", "max_token": 5}, "max_token", "unknown_parameter"),
        ("completions", {"prompt": "x", "temperature": -1}, "temperature", "invalid_value"),
        ("completions", {"prompt": "x", "top_p": 0}, "top_p", "invalid_value"),
        ("completions", {"prompt": "x", "n": 129}, "n", "invalid_value"),
        ("completions", {"prompt": "x", "logprobs": 21}, "logprobs", "invalid_value"),
        ("completions", {"prompt": "x", "seed": 2**63}, "seed", "invalid_value"),
        ("completions", {"prompt": "x", "stop": ""}, "stop", "invalid_value"),
        ("completions", {"prompt": "x", "stop": ["a"] * 17}, "stop", "invalid_value"),
        ("completions", {"prompt": ""}, "prompt", "empty_prompt"),
        ("completions", {"prompt": []}, "prompt", "invalid_value"),
        ("completions", {"prompt": [[]]}, "prompt", "invalid_value"),
        ("completions", {"prompt": "x", "stop_token_ids": [1] * 1025}, "stop_token_ids", "invalid_value"),
        ("completions", {"prompt": [1, "a"]}, "prompt", "invalid_value"),
        ("completions", {"prompt": [-1]}, "prompt", "invalid_value"),
        ("completions", {"prompt": [10**6]}, "prompt", None),
        ("completions", {"prompt": ["x"] * 100, "n": 100}, "prompt", None),
        ("completions", {"prompt": "x", "echo": True}, "echo", "not_supported"),
        ("completions", {"prompt": "x", "suffix": "y"}, "suffix", "not_supported"),
        ("completions", {"prompt": "x", "best_of": 2}, "best_of", "not_supported"),
        ("completions", {"prompt": "x", "logit_bias": {"5": 101}}, "logit_bias", "invalid_value"),
        ("completions", {"prompt": "x", "stream_options": {"include_usage": True}}, "stream_options", None),
        ("completions", {"prompt": "x", "max_tokens": 10**7}, "prompt", "context_length_exceeded"),
        ("chat/completions", {"messages": []}, "messages", "invalid_value"),
        ("chat/completions", {"messages": [{"content": "x"}]}, "messages[0].role", "missing_required_parameter"),
        ("chat/completions", {"messages": [{"role": "king"}]}, "messages[0].role", "invalid_value"),
        ("chat/completions", {"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_value"),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]},
            "messages",
            "no_vision",
        ),
        (
            "chat/completions",
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]},
            "messages[0].tool_calls[0].function",
            "missing_required_parameter",
        ),
        (
            "chat/completions",
            CHAT | {"tools": [{"type": "function"}]},
            "tools[0].function",
            "missing_required_parameter",
        ),
        ("chat/completions", CHAT | {"tool_choice": "required"}, "tool_choice", None),
        ("chat/completions", CHAT | {"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
        ("chat/completions", CHAT | {"top_logprobs": 2}, "top_logprobs", None),
        (
            "chat/completions",
            CHAT | {"chat_template_kwargs": {"chat_template": "{{ 1 }}"}},
            "messages",
            None,
        ),
        *(
            ("chat/completions", CHAT | {"chat_template_kwargs": {name: 1}}, param, None)
            for name, param in {
                "messages": "messages",
                "self": "messages",
                "conversation": "messages",
                "tokenize": "messages",
                "tools": "chat_template_kwargs",
                "add_generation_prompt": "chat_template_kwargs",
            }.items()
        ),
        ("chat/completions", CHAT | {"max_tokens": 10**7}, "messages", "context_length_exceeded"),
    ],
)
def test_a_bad_request_is_answered_with_its_field(http, path, body, param, code):
    response = http.post(f"/v1/{path}", json=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"prompt": "x", "temperature": NaN}',
        b'{"prompt": "\\ud800"}', b'{"prompt": "x", "\\ud800": 1}', b'{"prompt": "x", "model": "\\udfff"}',
        b'{"prompt": "x", "seed": 1' + b"0" * 5000 + b"}",
    ],
)  # fmt: skip
def test_garbage_is_answered_in_good_order(http, body):
    response = http.post("/v1/completions", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 404)
    assert response.json()["error"]["message"]


def test_fields_that_ask_for_nothing_are_accepted(http):
    nothing = {
        "tools": None, "tool_choice": "auto", "response_format": {"type": "text"}, "logit_bias": {}, "user": "me",
        "metadata": {"a": "b"}, "stop": None, "modalities": ["text"], "parallel_tool_calls": True, "store": False,
    }  # fmt: skip
    assert http.post("/v1/chat/completions", json=CHAT | nothing | {"max_tokens": 1}).status_code == 200


def test_too_long_a_prompt_names_both_lengths(llama):
    limit = llama.worker.max_model_len
    with pytest.raises(openai.BadRequestError, match=rf"{limit + 5} tokens.*{limit} tokens") as caught:
        llama.openai().completions.create(model="tiny", prompt="x" * (limit + 5), max_tokens=1)
    assert caught.value.code == "context_length_exceeded"


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_a_text_that_cannot_fit_is_refused_unread(llama, http, tokenizer, monkeypatch, path):
    limit = llama.worker.max_model_len
    text = "x" * (tokenizer.longest_token * (limit + 2))
    monkeypatch.setattr(type(tokenizer), "encode", lambda *a, **k: pytest.fail("was read"))
    body = {"prompt": text} if path == "completions" else {"messages": [{"role": "user", "content": text}]}
    response = http.post(f"/v1/{path}", json=body)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert re.search(rf" \d+ tokens or more.*{limit} tokens", response.json()["error"]["message"])


def test_a_client_cannot_forge_lines_of_the_log(llama, http):
    forged = "x\nrequest 1 prompt=1\x1b[2J" + "y" * 10_000
    assert http.post("/v1/completions", json={"model": forged, "prompt": "x"}).status_code == 404
    line = next(line for line in reversed(llama.lines) if "answered 404" in line)
    assert line.isprintable() and len(line) < 600


def test_unknown_model_path_and_method(llama, http):
    with pytest.raises(openai.NotFoundError) as caught:
        llama.openai().completions.create(model="gpt-5", prompt="x")
    assert caught.value.code == "model_not_found"
    assert http.get("/v2").json()["error"]["message"] == "Not Found"
    assert http.get("/v1/completions").status_code == 405


def test_a_full_queue_is_answered_429_and_the_server_goes_on(scripted):
    served = scripted(delay=0.01, max_running=1, refuse=QueueFull("3 requests are waiting, the limit is 3"))
    client = served.openai()
    running = client.completions.create(model="tiny", prompt=[1], max_tokens=100, stream=True)
    next(iter(running))
    with pytest.raises(openai.RateLimitError, match="waiting") as caught:
        client.completions.create(model="tiny", prompt=[2], stream=True)
    assert int(caught.value.response.headers["Retry-After"]) >= 1
    running.close()
    served.until_all_free()
    assert len(client.completions.create(model="tiny", prompt=[32], max_tokens=3).choices[0].text) == 3


def test_a_fault_of_the_engine_reaches_those_in_flight_and_the_health(scripted):
    served = scripted(delay=0.005, fail_at=20)
    client = served.openai()
    stream = client.completions.create(model="tiny", prompt=[32], max_tokens=100, stream=True)
    with pytest.raises(openai.APIError, match="the scripted fault"):
        list(stream)
    health = httpx.get(f"{served.url}/health")
    assert (health.status_code, health.json()) == (503, {"status": "unhealthy"})
    with pytest.raises(openai.InternalServerError, match="unhealthy") as caught:
        client.completions.create(model="tiny", prompt=[32])
    assert caught.value.status_code == 503
    assert any("Traceback" in line and "scripted fault" in line for line in served.lines)


def test_a_fault_of_the_engine_is_a_500_where_no_byte_is_out(scripted):
    served = scripted(fail_at=2)
    with pytest.raises(openai.InternalServerError, match="the scripted fault") as caught:
        served.openai().completions.create(model="tiny", prompt=[32], max_tokens=100)
    assert (caught.value.status_code, caught.value.code) == (500, "engine_failed")


def test_numbers_that_are_not_finite_cost_only_the_request_that_made_them(scripted):
    served = scripted(not_finite=35)
    client = served.openai()
    with pytest.raises(openai.InternalServerError, match="not finite") as caught:
        client.completions.create(model="tiny", prompt=[32], max_tokens=100)
    assert (caught.value.status_code, caught.value.code) == (500, "not_finite")
    with pytest.raises(openai.APIError, match="not finite"):
        list(client.completions.create(model="tiny", prompt=[32], max_tokens=100, stream=True, n=2))
    assert len(client.completions.create(model="tiny", prompt=[40], max_tokens=3).choices[0].text) == 3
    served.until_all_free()


def test_of_a_defect_the_client_learns_only_its_kind():
    told = as_api_error(ZeroDivisionError("secret"))
    assert told.status_code == 500
    assert b"ZeroDivisionError" in told.encoded() and b"secret" not in told.encoded()
