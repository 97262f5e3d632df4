"""Another engine started by `day0 serve`, as processes: phases, ready, metrics, drain, death; a stand-in for vLLM."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from day0.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
ENGINE = str(ROOT / "tests/engines/fake_engine.py")
SECONDS = 60
MODULES = {
    "vllm/entrypoints/cli/main.py": f"import runpy\nrunpy.run_path({ENGINE!r}, run_name='__main__')",
    "vllm/entrypoints/cli/serve.py": """
class ServeSubcommand:
    def subparser_init(self, parsers):
        parser = parsers.add_parser("serve")
        parser.add_argument("model")
        for name in ("host", "port", "tool-call-parser", "shutdown-timeout", "max-model-len"):
            parser.add_argument(f"--{name}")
        parser.add_argument("--enable-auto-tool-choice", action="store_true")
""",
    "vllm/utils/argparse_utils.py": "from argparse import ArgumentParser as FlexibleArgumentParser",
    "vllm/model_executor/models/registry.py": """
class ModelRegistry:
    def get_supported_archs():
        return {"LlamaForCausalLM"}
""",
    "vllm/tool_parsers/__init__.py": "class ToolParserManager:\n    tool_parsers = {'hermes': 1}",
    "vllm/reasoning/__init__.py": "class ReasoningParserManager:\n    reasoning_parsers = {}",
    "transformers/models/auto/configuration_auto.py": "CONFIG_MAPPING_NAMES = {}",
}  # fmt: skip


@dataclass
class Served:
    process: subprocess.Popen[bytes]
    port: int
    folder: Path

    @property
    def said(self) -> str:
        return (self.folder / "stderr").read_text()

    def pids(self) -> list[int]:
        return [int(word) for word in (self.folder / "pids").read_text().split()]

    def get(self, path: str, port: int) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def wait_for(self, what: Callable[[], bool]) -> None:
        until = time.monotonic() + SECONDS
        while not what():
            assert time.monotonic() < until, self.said
            time.sleep(0.05)

    def wait_ready(self) -> None:
        self.wait_for(lambda: "ready after" in self.said or self.process.poll() is not None)
        assert "ready after" in self.said, self.said


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    packages = tmp_path / "packages"
    for name, text in MODULES.items():
        path = packages / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    info = packages / "vllm-0.32.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0\n")
    python = tmp_path / "python"  # an interpreter of its own, so that day0 itself does not see these packages
    python.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return os.environ | {
        "FAKE_PIDS": str(tmp_path / "pids"),
        "DAY0_ENGINE_PYTHON": str(python),
        "TMPDIR": str(tmp_path),
    }


@pytest.fixture
def start(tmp_path: Path, environment: dict[str, str], tiny_llama: Path) -> Iterator[Callable[..., Served]]:
    started: list[subprocess.Popen[bytes]] = []

    def begin(mode: str = "good", *options: str) -> Served:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            two.bind(("127.0.0.1", 0))
            port, status = one.getsockname()[1], two.getsockname()[1]
        words = [
            "serve",
            str(tiny_llama),
            "--engine",
            "vllm",
            "--port",
            str(port),
            "--status-port",
            str(status),
            *options,
        ]
        with open(tmp_path / "stderr", "wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "day0.cli.main", *words],
                env=environment | {"FAKE_MODE": mode, "STATUS": str(status)},
                stderr=stderr,
                cwd=ROOT,
            )
        started.append(process)
        (tmp_path / "status").write_text(str(status))
        return Served(process, port, tmp_path)

    yield begin
    for process in started:
        process.kill()
        process.wait()


def all_gone(pids: list[int]) -> bool:
    return not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids)


def test_an_engine_is_followed_until_it_answers_and_drained_with_all_its_children(start):
    served = start("good", "--tool-call-parser", "hermes")
    served.wait_ready()
    status = int((served.folder / "status").read_text())
    for words in (
        "start: ",
        "now: load",
        "load: 50%",
        "now: warm up",
        "--enable-auto-tool-choice --tool-call-parser hermes",
    ):
        assert words in served.said
    assert served.get("/health", status) == (200, '{"status": "ready"}')
    code, metrics = served.get("/metrics", status)
    assert code == 200 and 'day0:engine_ready{engine="vllm",version="0.32.0"} 1.0' in metrics
    assert metrics.rstrip().endswith("vllm:num_requests_running 0.0")
    slow = subprocess.Popen(
        ["curl", "-s", f"http://127.0.0.1:{served.port}/v1/completions", "-d", json.dumps({"prompt": "slowly"})],
        stdout=subprocess.PIPE,
    )
    time.sleep(0.5)
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(SECONDS) == 0
    assert b"Paris" in slow.communicate()[0]
    assert all_gone(served.pids())


@pytest.mark.parametrize("victim", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_the_death_of_a_process_of_the_engine_ends_all_with_its_log_named(start, victim):
    served = start()
    served.wait_ready()
    os.kill(served.pids()[victim], signal.SIGKILL)
    assert served.process.wait(SECONDS) == 3
    how = "was killed by SIGKILL" if victim == 0 else "Engine core proc EngineCore died unexpectedly"
    assert how in served.said and "after it was ready" in served.said and "vllm.log" in served.said
    assert all_gone(served.pids())


def test_nothing_of_an_engine_outlives_day0_itself(start):
    served = start()
    served.wait_ready()
    served.process.kill()
    served.wait_for(lambda: all_gone(served.pids()))


def test_a_failure_is_explained_from_the_log(start):
    served = start("memory")
    assert served.process.wait(SECONDS) == 3
    assert "it ran out of memory" in served.said and "--mem-fraction" in served.said
    assert "in phase 'warm up'" in served.said
    assert all_gone(served.pids())


@pytest.mark.slow
def test_an_engine_that_answers_nonsense_is_never_ready(start):
    served = start("nonsense")
    assert served.process.wait(SECONDS) == 3
    assert "not as a working model: the log probability of token 0 is 0.5000, above 0" in served.said
    assert "ready after" not in served.said and all_gone(served.pids())


def test_what_the_engine_does_not_know_is_said_before_it_starts(start):
    served = start("good", "--tool-call-parser", "hermse")
    assert served.process.wait(SECONDS) == 2
    assert "hermse" in served.said and "did you mean hermes?" in served.said
    assert not (served.folder / "pids").exists()


def test_an_engine_that_is_not_there_is_the_environments_fault(tiny_llama, capsys, tmp_path):
    python = tmp_path / "python"
    python.symlink_to("/bin/true")
    assert main(["serve", str(tiny_llama), "--engine", "vllm", "--engine-python", str(python)]) == 3
    assert "vllm is not installed for" in capsys.readouterr().err
    assert main(["serve", str(tiny_llama), "--engine-python", str(python)]) == 2
    assert "--engine-python" in capsys.readouterr().err
