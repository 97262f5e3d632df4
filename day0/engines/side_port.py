"""The port beside an engine's own: whether it is ready, and its metrics with ours in front."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from day0.engines.phases import PHASES, Progress
from day0.errors import EnvironmentFault

SLOW_CLIENT_SECONDS = 10.0
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def own_metrics(progress: Progress, state: str, resident: int) -> bytes:
    """Our gauges as Prometheus text; `resident` is in bytes."""
    registry = CollectorRegistry()
    labels = {"engine": progress.engine, "version": progress.version or ""}
    ready = Gauge("day0:engine_ready", "1 once a checked forward passed.", list(labels), registry=registry)
    ready.labels(**labels).set(state == "ready")
    phases = Gauge("day0:engine_phase_seconds", "Seconds of each phase that is over.", ["phase"], registry=registry)
    for phase, seconds in progress.seconds.items():
        phases.labels(phase=phase).set(seconds)
    number = Gauge("day0:engine_phase", f"The present phase's place in: {', '.join(PHASES)}.", registry=registry)
    number.set(PHASES.index(progress.phase))
    memory = Gauge("day0:engine_resident_bytes", "Host memory of the engine's processes.", registry=registry)
    memory.set(resident)
    return generate_latest(registry)


class SidePort:
    """GET /health (200 "ready", else 503 with the state) and /metrics, until it is closed.

    `state` and `metrics` are called for each request, in a thread of its own.
    """

    def __init__(self, host: str, port: int, state: Callable[[], str], metrics: Callable[[], bytes]) -> None:
        handler = type("Handler", (_Handler,), {"state": staticmethod(state), "metrics": staticmethod(metrics)})
        try:
            self._server = ThreadingHTTPServer((host, port), handler)
        except OSError as error:
            raise EnvironmentFault(
                f"cannot listen on {host} port {port}: {error.strerror}", hint="choose another with --status-port"
            ) from error
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="day0-side-port", daemon=True)

    def open(self) -> None:
        """Begin to answer; until then clients wait."""
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    timeout = SLOW_CLIENT_SECONDS
    state: Callable[[], str]
    metrics: Callable[[], bytes]

    def do_GET(self) -> None:
        if self.path == "/health":
            state = self.state()
            self._answer(200 if state == "ready" else 503, "application/json", json.dumps({"status": state}).encode())
        elif self.path == "/metrics":
            self._answer(200, CONTENT_TYPE, self.metrics())
        else:
            self._answer(404, "text/plain", b"here are /health and /metrics; the API is on the engine's port\n")

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are not worth a line."""
