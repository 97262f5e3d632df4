"""Real engines started by `day0 serve`, where they are installed: DAY0_TEST_VLLM is the FOLDER that
scripts/install_vllm_cpu.sh filled, DAY0_TEST_TRANSFORMERS an interpreter whose transformers can serve."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from day0.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "smollm2-135m-instruct"
PORT = 8971
SECONDS = 600
ENGINES = {
    "vllm": ("DAY0_TEST_VLLM", "bin/python", ("--engine-arg=--enforce-eager", "--max-model-len", "2048")),
    "transformers": ("DAY0_TEST_TRANSFORMERS", "", ("--device", "cpu")),
}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not MODEL.is_dir(), reason="scripts/fetch_smollm2.py fetches the model"),
]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def begin(engine: str, *options: str) -> subprocess.Popen[bytes]:
        variable, below, words = ENGINES[engine]
        place = os.environ.get(variable)
        if place is None:
            pytest.skip(f"{variable} does not say where {engine} is")
        served = [str(MODEL), "--engine", engine, "--engine-python", str(Path(place, below)), "--port", str(PORT)]
        with open(tmp_path / "stderr", "wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "day0.cli.main", "serve", *served, *words, *options],
                env=os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1"},
                stderr=stderr,
                cwd=ROOT,
            )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def wait_ready(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + SECONDS
    while "ready after" not in log.read_text():
        assert process.poll() is None and time.monotonic() < until, log.read_text()
        time.sleep(0.5)
    return log.read_text()


def test_vllm_serves_passes_the_endpoint_list_and_holds_against_our_runtime(start, tmp_path, capsys):
    process = start("vllm")
    said = wait_ready(process, tmp_path / "stderr")
    assert "now: load" in said and "now: allocate" in said
    url = f"http://127.0.0.1:{PORT}"
    folder = ["--report-dir", str(tmp_path / "report")]
    assert main(["run-checklist", str(MODEL), "--target", url, *folder]) == 0, capsys.readouterr().out
    assert main(["run-checklist", str(MODEL), "--target", "runtime", "--against", url]) in (0, 4)
    assert "equal: what differs is within rounding" in capsys.readouterr().out
    process.send_signal(signal.SIGTERM)
    assert process.wait(90) == 0


def test_transformers_serves_and_says_what_was_not_checked(start, tmp_path):
    process = start("transformers")
    assert "weaker: it gives no log probabilities" in wait_ready(process, tmp_path / "stderr")
    process.send_signal(signal.SIGTERM)
    assert process.wait(90) == 0


def test_vllm_says_why_it_does_not_start(start, tmp_path):
    process = start("vllm", "--tp", "2")
    assert process.wait(SECONDS) == 3
    assert "attention heads (9) must be divisible by tensor parallel size (2)" in (tmp_path / "stderr").read_text()
