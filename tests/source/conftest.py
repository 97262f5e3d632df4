"""A small hub on a real socket: model info, tree listing, files with ranges, and the ways it can refuse."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

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
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)  # method, path, range
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
        hub, path = self.hub, self.path.partition("?")[0]
        hub.requests.append((self.command, path, self.headers.get("Range")))
        self.with_body = with_body
        if hub.down is not None:
            self._send(hub.down, b"down")
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
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for name, data in self.hub.files.items()
            ]
            self._send(200, json.dumps(tree).encode())
        else:
            siblings = [{"rfilename": name} for name in self.hub.files]
            info = {"id": self.hub.repo_id, "sha": COMMIT, "siblings": siblings, "gated": self.hub.gated}
            self._send(200, json.dumps(info).encode())

    def _answer_file(self, path: str) -> None:
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
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha1(data).hexdigest()}"', "Accept-Ranges": "bytes"}
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
        if self.with_body:
            try:
                self.wfile.write(body)
            except (BrokenPipeError, ConnectionResetError):  # the client has read all it wanted
                self.close_connection = True
            else:
                self.hub.bytes_sent += len(body)


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
