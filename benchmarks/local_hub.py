"""A hub on this machine that serves one model folder, with ranges: `python local_hub.py FOLDER ORG/NAME`.

Says its address on the first line of stdout and serves until it is ended.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

COMMIT = "0" * 40
_FILE = re.compile(r"/resolve/[^/]+/(?P<name>[\w.-]+)")


class Handler(BaseHTTPRequestHandler):
    """The answers of a hub to what readers of public models ask: model info, the list of files, files and ranges."""

    protocol_version = "HTTP/1.1"
    folder: Path
    repo_id: str

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self, *, with_body: bool) -> None:
        path = unquote(self.path.partition("?")[0])
        if path.startswith(f"/api/models/{self.repo_id}"):
            self._send(200, json.dumps(self._facts(tree="/tree/" in path)).encode(), {}, with_body=with_body)
        elif (match := _FILE.fullmatch(path.removeprefix(f"/{self.repo_id}"))) and self._file(match["name"]).is_file():
            self._send_file(self._file(match["name"]), with_body=with_body)
        else:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, with_body=with_body)

    def _file(self, name: str) -> Path:
        return self.folder / name

    def _facts(self, *, tree: bool) -> object:
        files = sorted(path for path in self.folder.iterdir() if path.is_file())
        if tree:
            return [
                {"type": "file", "path": path.name, "size": path.stat().st_size, "oid": _etag(path)} for path in files
            ]
        siblings = [{"rfilename": path.name, "size": path.stat().st_size} for path in files]
        return {"id": self.repo_id, "sha": COMMIT, "siblings": siblings}

    def _send_file(self, path: Path, *, with_body: bool) -> None:
        size = path.stat().st_size
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{_etag(path)}"', "Accept-Ranges": "bytes"}
        begin, end, status = 0, size, 200
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or ""):
            begin, end, status = int(wanted[1]), min(int(wanted[2] or size - 1) + 1, size), 206
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
        if not with_body:
            self._send(status, b"", headers, with_body=False, length=end - begin)
            return
        with path.open("rb") as file:
            file.seek(begin)
            self._send(status, file.read(end - begin), headers, with_body=True)

    def _send(
        self, status: int, body: bytes, headers: dict[str, str], *, with_body: bool, length: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if with_body:
            self.wfile.write(body)


def _etag(path: Path) -> str:
    return hashlib.sha1(f"{path.name} {path.stat().st_size}".encode()).hexdigest()


if __name__ == "__main__":
    Handler.folder, Handler.repo_id = Path(sys.argv[1]), sys.argv[2]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
