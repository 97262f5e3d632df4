import socket
import threading
import time

import httpx
import openai
import pytest

from day0.errors import EnvironmentFault, InputError
from day0.runtime.server.lifecycle import bind


def test_a_port_in_use_is_named():
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EnvironmentFault, match=f"port {port}") as caught:
            bind("127.0.0.1", port)
    assert "--port" in caught.value.hint


def test_a_host_that_is_not_ours_or_does_not_exist():
    for host in ("203.0.113.7", "no such host"):
        with pytest.raises(EnvironmentFault, match=host):
            bind(host, 0)


@pytest.mark.parametrize("host", ["..", "x" * 300, "a\N{REPLACEMENT CHARACTER}"])
def test_what_is_no_name_of_a_host(host: str):
    with pytest.raises(InputError, match="no name of a host"):
        bind(host, 0)


def test_a_request_that_never_comes_does_not_keep_the_server(scripted, monkeypatch, caplog):
    monkeypatch.setattr("day0.runtime.server.lifecycle.SLOW_READER_SECONDS", 1)
    served = scripted()
    address = served.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=20) as half:
        half.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert httpx.get(f"{served.url}/health").status_code == 200
        served.stop()
        answer = half.recv(65536)
    assert answer.startswith(b"HTTP/1.1 503")
    assert any("was cut off" in line for line in served.lines)
    assert not [record for record in caplog.records if record.exc_info], "no traceback for a client's fault"


def test_draining_finishes_streams_and_takes_nothing_new(scripted):
    served = scripted(delay=0.02)
    stream = iter(served.openai().completions.create(model="tiny", prompt=[32], max_tokens=40, stream=True))
    text = next(stream).choices[0].text
    served.stop()
    while (health := httpx.get(f"{served.url}/health")).status_code == 200:
        pass
    assert health.json() == {"status": "draining"}
    with pytest.raises(openai.InternalServerError, match="draining") as caught:
        served.openai().completions.create(model="tiny", prompt=[32])
    assert caught.value.status_code == 503
    text += "".join(chunk.choices[0].text for chunk in stream)
    assert text == "".join(chr(65 + i) for i in range(40))
    ended_by = time.monotonic() + 3
    while True:
        try:
            httpx.get(f"{served.url}/health")
        except httpx.ConnectError:
            break
        assert time.monotonic() < ended_by
    assert served.worker.failure is None


def test_a_model_that_does_not_load_ends_the_server(serve, tokenizer):
    def load():
        raise InputError("shard missing")

    served = serve(load, tokenizer, ready=False)
    with pytest.raises(httpx.TransportError):
        while True:
            assert httpx.get(f"{served.url}/health").status_code == 503
    assert isinstance(served.worker.failure, InputError)


def test_stopping_while_loading_does_not_wait_for_the_model(serve, scripted_engine, tokenizer):
    gate = threading.Event()

    def load():
        gate.wait(20)
        return scripted_engine()

    served = serve(load, tokenizer, ready=False)
    assert httpx.get(f"{served.url}/health").status_code == 503
    began = time.monotonic()
    served.stop()
    with pytest.raises(httpx.TransportError):
        while True:
            httpx.get(f"{served.url}/health")
    assert time.monotonic() - began < 5
    gate.set()
