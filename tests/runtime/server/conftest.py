"""A real server on a real socket in a thread, around whatever engine a test gives it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from day0.plan.settings import EngineSettings
from day0.profile.read import read_profile
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.load import load_engine
from day0.runtime.engine.worker import EngineWorker
from day0.runtime.server.app import create_app
from day0.runtime.server.lifecycle import HttpServer, bind
from day0.runtime.server.protocol import Patience
from day0.runtime.tokenizer import Tokenizer
from day0.source.resolve import resolve


@dataclass(slots=True)
class Served:
    """A running server, seen from outside (`url`, `http`, `openai`) and from inside (`worker`, `lines`)."""

    url: str
    worker: EngineWorker
    stop: Callable[[], None]
    lines: list[str] = field(default_factory=list)
    engine: Any = None

    def openai(self, **options: Any) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", max_retries=0, **({"api_key": "none"} | options))

    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=30)

    def metric(self, name: str) -> float:
        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))

    def all_free(self) -> bool:
        stats = self.worker.stats
        free = stats.pages_free == stats.pages_total and stats.state_slots_free == stats.state_slots_total
        return free and stats.running == stats.waiting == 0

    def until_all_free(self, seconds: float = 1.0) -> None:
        until(self.all_free, seconds)


def until(holds: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[..., Served]]:
    """`serve(load, tokenizer, name, **options of create_app)` starts a server that ends with the module's tests."""
    started: list[tuple[Served, threading.Thread]] = []

    def start(
        load: Callable[[], Any],
        tokenizer: Any,
        name: str = "tiny",
        *,
        ready: bool = True,
        patience: Patience | None = None,
        **options: Any,
    ):
        listener = bind("127.0.0.1", 0)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        worker = EngineWorker(load)
        lines: list[str] = []
        app = create_app(worker, tokenizer, name, log=lines.append, **options)
        server = HttpServer(
            app, worker, listener, log=lines.append, end_at_once=lambda: None, patience=patience or Patience()
        )
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=lambda: loop.run_until_complete(server.run(signals=())), daemon=True)
        thread.start()
        served = Served(url, worker, lambda: loop.call_soon_threadsafe(server.stop), lines)
        started.append((served, thread))
        if ready:
            until(worker.ready.is_set, 60)
            until(lambda: httpx.get(f"{url}/health").status_code == 200)
        return served

    yield start
    running = [(served, thread) for served, thread in started if thread.is_alive()]
    for served, _ in running:
        served.stop()
    for served, thread in running:
        thread.join(15)
        assert not thread.is_alive(), f"the server at {served.url} did not end"


@pytest.fixture(scope="session")
def tokenizer(tiny_llama: Path) -> Tokenizer:
    """One token per byte; ids 0 to 93 are the printable characters from "!" on."""
    return Tokenizer.from_folder(tiny_llama)


def loader(folder: Path, *, max_num_seqs: int = 32) -> Callable[[], Engine]:
    files = resolve(str(folder))
    return partial(load_engine, files, read_profile(files), EngineSettings(device="cpu", max_num_seqs=max_num_seqs))


@pytest.fixture(scope="session")
def load_from() -> Callable[..., Callable[[], Engine]]:
    """`load_from(folder)` is what a server loads its engine with."""
    return loader


@pytest.fixture(scope="module")
def llama(serve: Callable[..., Served], tiny_llama: Path, tokenizer: Tokenizer) -> Served:
    """The tiny attention model behind a server."""
    return serve(loader(tiny_llama), tokenizer)


@pytest.fixture(scope="module")
def kimi(serve: Callable[..., Served], tiny_kimi_k3: Path) -> Served:
    """The tiny hybrid model, which keeps recurrent state per sequence, behind a server."""
    return serve(loader(tiny_kimi_k3), Tokenizer.from_folder(tiny_kimi_k3))


@pytest.fixture
def scripted(serve: Callable[..., Served], scripted_engine: Any, tokenizer: Tokenizer) -> Callable[..., Served]:
    """`scripted(**fields)`: a server around a scripted engine. A prompt [32] is answered A, B, C and so on."""

    def start(*, ready: bool = True, options: dict[str, Any] | None = None, **fields: Any) -> Served:
        engine = scripted_engine(**fields)
        served = serve(lambda: engine, tokenizer, ready=ready, **(options or {}))
        served.engine = engine
        return served

    return start


@pytest.fixture(name="until", scope="session")
def until_fixture() -> Callable[..., None]:
    """`until(holds, seconds)` waits for what must come true."""
    return until
