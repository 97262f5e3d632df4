"""Clients that hold connections: large heads, heads that do not come, answers that nobody reads."""

import json
import socket
import threading
import time
from contextlib import suppress

import httpx
import openai
import pytest

from day0.runtime.server.protocol import Patience

BODY = {"prompt": [32], "max_tokens": 3}


@pytest.fixture
def hasty(serve, scripted_engine, tokenizer):
    def start(patience, **fields):
        return serve(lambda: scripted_engine(**fields), tokenizer, patience=patience)

    return start


def connect(served, small=False):
    host, port = served.url.removeprefix("http://").split(":")
    client = socket.socket()
    if small:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(20)
    client.connect((host, int(port)))
    return client


def post(body):
    content = json.dumps(body).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(content) + content


def test_ten_megabytes_of_headers_are_a_431_and_the_end_of_the_connection(scripted):
    served = scripted()
    answer = httpx.get(f"{served.url}/health", headers={"X-Large": "x" * 10 * 2**20})
    assert answer.status_code == 431
    assert answer.json()["error"]["code"] == "headers_too_large"
    assert answer.headers["Connection"] == "close"
    with connect(served) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000)
        assert raw.recv(100).startswith(b"HTTP/1.1 431")
    with pytest.raises(openai.APIStatusError) as refused:
        served.openai(default_headers={"X-Large": "x" * 10 * 2**20}).models.list()
    assert refused.value.status_code == 431
    assert httpx.get(f"{served.url}/health").status_code == 200


def test_what_is_not_http_is_told_so(scripted):
    with connect(scripted()) as raw:
        raw.sendall(b"\x16\x03\x01\x02\x00\r\n\r\n")
        answer = b""
        while part := raw.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 400") and b'"invalid_http"' in answer


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nX: ", post(BODY) + b"GET /hea"])
def test_a_head_that_does_not_come_ends_the_connection(hasty, sent):
    served = hasty(Patience(head_seconds=0.3))
    with connect(served) as raw:
        raw.sendall(sent)
        received = b""
        with suppress(ConnectionError):  # closed or reset: that it ends is the point
            while part := raw.recv(65536):
                received += part
    assert received.startswith(b"HTTP/1.1 200") if sent.startswith(b"POST") else received == b""


def test_a_client_that_does_not_read_is_cut_off_and_others_are_served_meanwhile(hasty, until):
    served = hasty(Patience(reader_seconds=0.5), max_model_len=10**6, delay=0.001)
    body = {"prompt": [32], "n": 64, "max_tokens": 50_000, "stream": True, "ignore_eos": True}
    with connect(served, small=True) as deaf:
        deaf.sendall(post(body))
        until(lambda: served.worker.num_streaming == 64)
        own = served.openai().completions.create(model="tiny", prompt=[32], max_tokens=20)
        assert own.usage.completion_tokens == 20
        until(lambda: served.worker.num_streaming == 0, 20)
    until(lambda: any("finish=abort" in line for line in served.lines))
    served.until_all_free()


def test_a_slow_answer_is_no_slow_client(hasty):
    served = hasty(Patience(head_seconds=0.2, reader_seconds=0.2), delay=0.1)
    answer = served.openai().completions.create(model="tiny", prompt=[32], max_tokens=8)
    assert answer.usage.completion_tokens == 8


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_takes_too_long_ends(scripted, stream):
    served = scripted(delay=0.05, options={"request_seconds": 0.4})
    with pytest.raises(openai.APIError, match=r"not whole within 0\.4 seconds"):
        answer = served.openai().completions.create(model="tiny", prompt=[32], max_tokens=100, stream=stream)
        list(answer)
    served.until_all_free()
    assert served.openai().completions.create(model="tiny", prompt=[32], max_tokens=2).choices[0].finish_reason


def test_wall_clock_jumps_change_nothing(scripted, monkeypatch):
    served = scripted(delay=0.01, options={"request_seconds": 5.0, "stall_seconds": 5.0})
    real = time.time
    jump = {"by": 0.0}
    monkeypatch.setattr(time, "time", lambda: real() + jump["by"])
    stream = served.openai().completions.create(model="tiny", prompt=[32], max_tokens=30, stream=True)
    for number, _ in enumerate(stream):
        jump["by"] = (-1) ** number * 10**8
        assert httpx.get(f"{served.url}/health").status_code == 200
    assert number == 29


def test_one_client_with_many_requests_does_not_starve_another(serve, load_from, tiny_llama, tokenizer, until):
    served = serve(load_from(tiny_llama, max_num_seqs=2), tokenizer)
    order: list[str] = []

    def ask(address, number):
        with httpx.Client(transport=httpx.HTTPTransport(local_address=address), timeout=60) as client:
            body = {"prompt": f"{address} {number}", "max_tokens": 16, "ignore_eos": True}
            assert client.post(f"{served.url}/v1/completions", json=body).status_code == 200
        order.append(address)

    heavy = [threading.Thread(target=ask, args=("127.0.0.2", number)) for number in range(24)]
    for thread in heavy:
        thread.start()
    until(lambda: served.worker.stats.waiting >= 10, 20)
    before = len(order)
    light = [threading.Thread(target=ask, args=("127.0.0.3", number)) for number in range(2)]
    for thread in light:
        thread.start()
    for thread in (*light, *heavy):
        thread.join()
    assert max(place for place, who in enumerate(order) if who == "127.0.0.3") - before < 12
