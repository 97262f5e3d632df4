"""Sound contexts: the tiny models on the runtime in this process, and one of them behind a real server."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from day0.checklist.client import EndpointTarget
from day0.checklist.probe_runtime import RuntimeTarget, tokenizer_of
from day0.checklist.target import CheckContext
from day0.cli.serve_plan import CheckedPlan
from day0.plan.accounting import accounting_for
from day0.plan.cluster import parse_cluster
from day0.plan.layout import LayoutRequest
from day0.plan.plan import Planner
from day0.plan.settings import EngineSettings
from day0.plan.workload import make_workload
from day0.profile.read import read_profile
from day0.runtime.engine.load import load_engine
from day0.runtime.engine.worker import EngineWorker
from day0.runtime.server.app import create_app
from day0.runtime.server.lifecycle import HttpServer, bind
from day0.runtime.tokenizer import Tokenizer
from day0.source.resolve import resolve

SETTINGS = EngineSettings(device="cpu")
CALLING_TEMPLATE = (
    "{% if tools %}Tools: {{ tools | tojson }}\n"
    'Answer with <tool_call>\n{"name": ..., "arguments": ...}\n</tool_call>\n{% endif %}'
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def runtime_context(folder: Path, reference: str = "transformers") -> CheckContext:
    files = resolve(str(folder))
    profile = read_profile(files)
    tokenizer, fault = tokenizer_of(files)
    target = RuntimeTarget(files, profile, SETTINGS, tokenizer)
    return CheckContext(files, profile, target, reference, tokenizer_fault=fault)


def planned_context(folder: Path, **demand: Any) -> CheckContext:
    """A runtime started by a plan for one GPU, of 256 tokens of context and what else is in demand."""
    files = resolve(str(folder))
    profile = read_profile(files)
    workload = make_workload(profile, context=min(256, profile.max_position or 256), max_num_seqs=4, **demand)
    planner = Planner(profile, parse_cluster("l4:1"), accounting_for("day0"), workload)
    plan = planner.plan(planner.accounting.complete(LayoutRequest(), profile, 1))
    settings = EngineSettings(device="cpu", **CheckedPlan(Path("plan.yaml"), files, planner, plan).settings())
    tokenizer, fault = tokenizer_of(files)
    target = RuntimeTarget(files, profile, settings, tokenizer)
    return CheckContext(files, profile, target, "runtime", tokenizer_fault=fault, plan=plan)


@pytest.fixture(scope="session")
def context_over() -> Callable[[Path], CheckContext]:
    """`context_over(folder)`: a model on the runtime in this process."""
    return runtime_context


@pytest.fixture(scope="session")
def llama(tiny_llama: Path) -> CheckContext:
    return runtime_context(tiny_llama)


@pytest.fixture(scope="session")
def planned_llama(tiny_llama: Path) -> CheckContext:
    return planned_context(tiny_llama)


@pytest.fixture(scope="session")
def qwen3_moe(tiny_qwen3_moe: Path) -> CheckContext:
    return runtime_context(tiny_qwen3_moe)


@pytest.fixture(scope="session")
def kimi_k3(tiny_kimi_k3: Path) -> CheckContext:
    return runtime_context(tiny_kimi_k3, "runtime")


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """A day0 server with a model on a real socket: its URL."""
    files = resolve(str(folder))
    worker = EngineWorker(partial(load_engine, files, read_profile(files), SETTINGS))
    app = create_app(worker, Tokenizer.from_folder(folder), "tiny", log=lambda line: None)
    listener = bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = HttpServer(app, worker, listener, log=lambda line: None, end_at_once=lambda: None)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(server.run(signals=())), daemon=True)
    thread.start()
    _wait_until_healthy(url)
    yield url
    loop.call_soon_threadsafe(server.stop)
    thread.join(timeout=30)


@pytest.fixture(scope="session")
def server_url(tiny_llama: Path) -> Iterator[str]:
    """A day0 server with the tiny llama on a real socket."""
    with serving(tiny_llama) as url:
        yield url


def _wait_until_healthy(url: str) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < end, "the server did not become healthy"
        time.sleep(0.02)


@contextmanager
def endpoint_context(folder: Path, url: str) -> Iterator[CheckContext]:
    """A server as the target, with the model's own files beside it."""
    files = resolve(str(folder))
    tokenizer, _ = tokenizer_of(files)
    target = EndpointTarget(url, tokenizer)
    yield CheckContext(files, read_profile(files), target, "transformers")
    target.close()


@pytest.fixture(scope="session")
def endpoint(tiny_llama: Path, server_url: str) -> Iterator[CheckContext]:
    with endpoint_context(tiny_llama, server_url) as context:
        yield context


@pytest.fixture(scope="session")
def calling_llama(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny llama with room for tools, and a template that shows them."""
    folder = tmp_path_factory.mktemp("calling") / "model"
    shutil.copytree(tiny_llama, folder)
    (folder / "chat_template.jinja").write_text(CALLING_TEMPLATE)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4096}))
    return folder


@pytest.fixture(scope="session")
def calling_endpoint(calling_llama: Path) -> Iterator[CheckContext]:
    with serving(calling_llama) as url, endpoint_context(calling_llama, url) as context:
        yield context


@pytest.fixture(scope="session")
def contexts(request: pytest.FixtureRequest) -> Callable[[str], CheckContext]:
    """A sound context by the name of its fixture, made when it is first wanted."""
    return request.getfixturevalue
