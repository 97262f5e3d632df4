"""A server with switchable faults of its wire format: every one is found, and named by the rule it breaks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from day0.checklist.checklist import Measured
from day0.checklist.client import EndpointTarget, Reply
from day0.checklist.probe_faults_wire import WireFault, wire_faults
from day0.checklist.probe_table import PROBES
from day0.checklist.target import CheckContext
from day0.checklist.wire import RULES

END = "<|end|>"
FAULTS = wire_faults(END)


class FaultyServer:
    """Passes requests on to a sound server and changes the replies by `fault`, where there is one."""

    def __init__(self) -> None:
        self.fault: WireFault | None = None
        self.url = ""

    def reply(self, body: Any, sound: Reply) -> Reply:
        return sound if self.fault is None else self.fault.change(body if isinstance(body, dict) else {}, sound)


@pytest.fixture(scope="module")
def faulty(calling_endpoint: CheckContext) -> Iterator[FaultyServer]:
    server, behind = FaultyServer(), httpx.Client(base_url=calling_endpoint.target.name, timeout=60)
    replies: dict[tuple[str, bytes], Reply] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(_taken(behind.get(self.path)))

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            key = self.path, raw
            if key not in replies:  # greedy answers repeat themselves, so each is worked out once
                headers = {"Content-Type": "application/json"}
                replies[key] = _taken(behind.post(self.path, content=raw, headers=headers))
            sound = replies[key]
            try:
                body = json.loads(raw)
            except ValueError:
                body = None
            self._send(server.reply(body, sound))

        def _send(self, reply: Reply) -> None:
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.content_type)
            self.end_headers()
            self.wfile.write(reply.text.encode())

        def log_message(self, *arguments: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    server.url = f"http://127.0.0.1:{http.server_port}"
    yield server
    http.shutdown()
    http.server_close()
    behind.close()


def _taken(response: httpx.Response) -> Reply:
    return Reply(response.status_code, response.text, response.headers["content-type"])


@pytest.fixture(scope="module")
def measure(faulty: FaultyServer, calling_endpoint: CheckContext) -> Iterator[Callable[[str, str | None], Measured]]:
    """`measure(probe, fault)`: what a probe sees of the server with a fault, or without."""
    target = EndpointTarget(faulty.url, calling_endpoint.target.tokenizer)
    context = CheckContext(calling_endpoint.files, calling_endpoint.profile, target, "transformers")

    def run(probe: str, fault: str | None) -> Measured:
        faulty.fault = FAULTS[fault] if fault is not None else None
        outcome = PROBES[probe].run(context)
        assert isinstance(outcome, Measured), outcome
        return outcome

    yield run
    target.close()


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_is_found_and_named(what: str, measure: Callable[[str, str | None], Measured]) -> None:
    found = measure(FAULTS[what].probe, what)
    assert FAULTS[what].rule in found.values["rules"], found


@pytest.mark.parametrize("probe", sorted({fault.probe for fault in FAULTS.values()}))
def test_a_sound_server_breaks_no_rule(probe: str, measure: Callable[[str, str | None], Measured]) -> None:
    found = measure(probe, None)
    assert found.inspected > 0
    assert not found.values["breaches"], found.message


def test_faults_are_many_and_of_known_rules() -> None:
    assert len(FAULTS) >= 25
    assert {fault.rule for fault in FAULTS.values()} <= set(RULES)
    assert set(RULES) - {fault.rule for fault in FAULTS.values()} == {"status"}


def test_the_end_token_is_one_of_the_models(calling_endpoint: CheckContext) -> None:
    tokenizer = calling_endpoint.target.tokenizer
    assert tokenizer is not None
    assert END in {tokenizer.decode([token], skip_special_tokens=False) for token in tokenizer.eos_token_ids}


def test_the_docs_name_every_rule() -> None:
    text = (Path(__file__).parents[2] / "docs" / "checklist.md").read_text()
    for name, words in RULES.items():
        assert f"| `{name}` | {words} |" in text
