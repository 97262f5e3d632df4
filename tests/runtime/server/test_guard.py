import re
import socket

import httpx
import pytest

BODY = {"prompt": [32], "max_tokens": 3}


@pytest.fixture
def guarded(scripted):
    return scripted(options={"api_key": "schlüssel", "max_body_bytes": 1000})


def post(served, body=None, **headers):
    return httpx.post(f"{served.url}/v1/completions", json=body or BODY, headers=headers)


@pytest.mark.parametrize("given", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "schluessel"}])
def test_without_the_key_nothing_is_served(scripted, given):
    served = scripted(options={"api_key": "right"})
    answer = post(served, **given)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert httpx.get(f"{served.url}/v1/models").status_code == 401
    assert post(served, Authorization="Bearer right").status_code == 200


def test_a_key_that_is_not_ascii(guarded):
    headers = {b"Authorization": "Bearer schlüssel".encode()}
    assert httpx.post(f"{guarded.url}/v1/completions", json=BODY, headers=headers).status_code == 200


def test_health_metrics_and_version_need_no_key(scripted):
    served = scripted(options={"api_key": "right"})
    for path in ("/health", "/metrics", "/version"):
        assert httpx.get(f"{served.url}{path}").status_code == 200


def test_too_large_a_body_is_refused_whether_or_not_it_says_so(scripted):
    served = scripted(options={"max_body_bytes": 1000})
    said = httpx.post(f"{served.url}/v1/completions", json={"prompt": "x" * 2000})
    assert said.status_code == 413
    pieces = (b" " * 300 for _ in range(5))
    unsaid = httpx.post(f"{served.url}/v1/completions", content=pieces, headers={"Content-Type": "application/json"})
    assert unsaid.status_code == 413
    assert unsaid.json()["error"]["code"] == "body_too_large"
    assert post(served).status_code == 200


def test_a_request_keeps_its_id(scripted):
    served = scripted()
    answer = post(served, **{"X-Request-Id": "job-7.a"})
    assert answer.headers["X-Request-Id"] == "job-7.a"
    assert answer.json()["id"] == "cmpl-job-7.a"
    assert any("request job-7.a " in line for line in served.lines)
    own = post(served).headers["X-Request-Id"]
    assert re.fullmatch("[0-9a-f]{32}", own)


@pytest.mark.parametrize("given", ["a b", "x" * 129, "a\x7f", "é".encode()])
def test_an_id_that_does_not_belong_in_a_log_is_replaced(scripted, given):
    answer = post(scripted(), **{"X-Request-Id": given})
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["X-Request-Id"])


def test_refusals_have_an_id_too(scripted):
    answer = httpx.post(f"{scripted().url}/v1/completions", content=b"{", headers={"X-Request-Id": "broken"})
    assert answer.status_code == 400
    assert answer.headers["X-Request-Id"] == "broken"


def test_a_body_that_trickles_in_is_not_waited_for(scripted):
    served = scripted(options={"body_seconds": 0.3})
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as half:
        half.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert half.recv(65536).startswith(b"HTTP/1.1 408")
    slow = scripted(delay=0.05, options={"body_seconds": 0.3})
    answer = slow.openai().completions.create(model="tiny", prompt=[32], max_tokens=12)
    assert answer.usage.completion_tokens == 12, "only the body is hurried"
    assert slow.metric("vllm:inter_token_latency_seconds_count") == 11
