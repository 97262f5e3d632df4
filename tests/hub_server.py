"""A small hub on a real socket: model info, tree listing, files with ranges, and the ways it can refuse."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

WEIGHTS = (".safetensors", ".bin")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """What the server serves and how it behaves; tests change the fields."""

    repo_id: str
    files: dict[str, bytes]
    address: str = ""
    token: str | None = None  # demanded when set
    gated: bool = False
    ranges: bool = True
    broken_answers: int = 0  # how many of the next file requests get a 503
    down: int | None = None  # the status of every answer, when set
    not_a_hub: bool = False
    busy: int = 0  # how many of the next requests get a 429 with the headers `busy_headers`
    busy_headers: dict[str, str] = field(default_factory=dict)
    altered: dict[str, bytes] = field(default_factory=dict)  # what is sent in place of a file, whatever is listed
    cuts: list[int] = field(default_factory=list)  # after how many bytes each next answer with a weight file breaks off
    resets: bool = False  # whether a cut is a reset rather than an orderly end
    latency: float = 0.0  # seconds before a weight file is answered
    at_once: int = 0
    most_at_once: int = 0  # requests of weight files in flight
    weight_bytes_sent: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)  # method, path, range
    proxied: set[str] = field(default_factory=set)  # hosts that it was asked for as a proxy
    bytes_sent: int = 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self, *, with_body: bool) -> None:
        hub = self.hub
        if self.path.startswith("http://"):  # asked as a proxy
            hub.proxied.add(self.path.split("/")[2])
            self.path = "/" + self.path.split("/", 3)[3]
        path = self.path.partition("?")[0]
        hub.requests.append((self.command, path, self.headers.get("Range")))
        self.with_body = with_body
        if hub.down is not None:
            self._send(hub.down, b"down")
        elif hub.busy > 0:
            hub.busy -= 1
            self._send(429, b"busy", hub.busy_headers)
        elif hub.not_a_hub:
            self._send(200, b"<html>please log in to this network</html>")
        elif hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            self._send(401, b"{}", {"X-Error-Message": "Invalid username or password."})
        elif not path.startswith((f"/api/models/{hub.repo_id}", f"/{hub.repo_id}/resolve/")):
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif path.startswith("/api/"):
            self._answer_api(path.removeprefix(f"/api/models/{hub.repo_id}"))
        else:
            self._answer_file(path.removeprefix(f"/{hub.repo_id}/resolve/"))

    def _answer_api(self, path: str) -> None:
        revision = re.fullmatch(r"(?:/(?:revision|tree)/([^/]+))?", path)
        if revision is None or revision[1] not in (None, "main", "v1", COMMIT):
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif path.startswith("/tree/"):
            tree = [_listed(name, data) for name, data in self.hub.files.items()]
            self._send(200, json.dumps(tree).encode())
        else:
            siblings = [{"rfilename": name} for name in self.hub.files]
            info = {"id": self.hub.repo_id, "sha": COMMIT, "siblings": siblings, "gated": self.hub.gated}
            self._send(200, json.dumps(info).encode())

    def _answer_file(self, path: str) -> None:
        hub = self.hub
        if not path.endswith(WEIGHTS) or not self.with_body:
            self._answer_content(path)
            return
        with hub.lock:
            hub.at_once += 1
            hub.most_at_once = max(hub.most_at_once, hub.at_once)
        time.sleep(hub.latency)
        with hub.lock:
            hub.at_once -= 1
        self._answer_content(path)

    def _answer_content(self, path: str) -> None:
        hub, name = self.hub, path.partition("/")[2]
        if hub.gated:
            self._send(403, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted."})
            return
        if hub.broken_answers > 0:
            hub.broken_answers -= 1
            self._send(503, b"")
            return
        data = hub.files.get(name)
        if data is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
            return
        listed = _listed(name, data)
        etag = listed["lfs"]["oid"] if "lfs" in listed else listed["oid"]
        data = hub.altered.get(name, data)
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if wanted is None or not hub.ranges:
            self._send(200, data, headers)
            return
        begin, end = int(wanted[1]), int(wanted[2] or len(data) - 1) + 1
        if begin >= len(data):
            self._send(416, b"", {**headers, "Content-Range": f"bytes */{len(data)}"})
            return
        end = min(end, len(data))
        self._send(206, data[begin:end], {**headers, "Content-Range": f"bytes {begin}-{end - 1}/{len(data)}"})

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.with_body and self.hub.cuts and self.path.endswith(WEIGHTS) and status in (200, 206):
            body = body[: self.hub.cuts.pop(0)]
            self.close_connection = True
            if self.hub.resets:  # closing with data unsent and no time to linger resets the connection
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if self.with_body:
            try:
                self.wfile.write(body)
            except (BrokenPipeError, ConnectionResetError):  # the client has read all it wanted
                self.close_connection = True
            else:
                with self.hub.lock:
                    self.hub.bytes_sent += len(body)
                    self.hub.weight_bytes_sent += len(body) if self.path.endswith(WEIGHTS) else 0


def _listed(name: str, data: bytes) -> dict[str, Any]:
    """A row of the tree listing; weights are kept by Git LFS."""
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    row: dict[str, Any] = {"type": "file", "path": name, "size": len(data), "oid": blob}
    if name.endswith(WEIGHTS):
        row["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return row


@pytest.fixture
def fake_hub() -> Iterator[FakeHub]:
    """A running hub with one empty repository, `org/some-model`; tests fill `files`."""
    hub = FakeHub("org/some-model", {})
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield hub
    server.shutdown()
    server.server_close()
    thread.join()
