"""`day0 compare TRACE URL` over real HTTP: our own server, one that tells nothing, and none at all."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from safetensors.torch import load_file, save_file

from day0.cli.main import main

IDS = "5,34,63,92,121,150,179,208"
FLOAT32 = ("--endpoint-dtype", "float32")


class Endpoint(BaseHTTPRequestHandler):
    """Answers every completion with one choice, which `choice` is."""

    choice: ClassVar[dict[str, object]] = {"text": "a"}

    def do_GET(self) -> None:
        self._send({"data": [{"id": "m"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._send({"choices": [self.choice]})

    def _send(self, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def traced(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("traces") / "ref"
    arguments = ["--token-ids", IDS, "--max-new-tokens", "4", "--device", "cpu"]
    assert main(["trace", str(tiny_llama), str(out), *arguments]) == 0
    return out


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that answers, and tells nothing of its log probabilities."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def compared(traced: Path, url: str, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict]:
    capsys.readouterr()
    status = main(["compare", str(traced), url, *more, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_our_server_tells_what_the_trace_has(traced: Path, tiny_llama: Path, server_url: str, capsys) -> None:
    status, found = compared(traced, server_url, capsys, *FLOAT32)
    assert (status, found["verdict"], found["first"]) == (0, "equal", None), found
    told = found["endpoint"]
    assert (told["rows"], told["told"], told["differing"]) == (11, 11, 0)
    assert told["error"] < 1e-5 and told["worst_kl"] < 1e-9 and told["agreement"] > 0.9


def test_other_logits_deviate_at_their_token(traced: Path, server_url: str, tmp_path: Path, capsys) -> None:
    tensors = load_file(traced.with_suffix(".safetensors"))
    tensors["logits"][3:] *= 1.01
    save_file(tensors, tmp_path / "other.safetensors")
    for ending in (".json", ".jsonl"):
        shutil.copy(traced.with_suffix(ending), tmp_path / f"other{ending}")
    status, found = compared(tmp_path / "other", server_url, capsys, *FLOAT32)
    assert (status, found["verdict"], found["first"]["position"]) == (1, "deviates", 3)


def test_a_server_that_tells_nothing_never_passes(traced: Path, silent: str, capsys) -> None:
    status, found = compared(traced, silent, capsys)
    assert (status, found["verdict"]) == (4, "incomplete")
    assert len(found["missing"]["b"]) == 11


def test_no_server_is_the_environments_fault(traced: Path, capsys) -> None:
    assert main(["compare", str(traced), "http://127.0.0.1:9"]) == 3
    assert "does not answer" in capsys.readouterr().err


def test_flags_that_an_endpoint_cannot_follow_are_refused(traced: Path, capsys) -> None:
    assert main(["compare", str(traced), "http://127.0.0.1:9", "--common"]) == 2
    assert "only logits" in capsys.readouterr().err
