"""`day0 serve`, in a process of its own where signals and exit codes matter."""

from __future__ import annotations

import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import openai
import psutil
import pytest

from day0.cli.main import main

START_SECONDS = 90.0


class Process:
    """A running `day0 serve`, its stderr read line by line as it comes."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "day0.cli.main", "serve", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | (env or {}),
        )
        self.lines: list[str] = []
        self._arriving: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stderr:
            self._arriving.put(line.rstrip("\n"))
        self._arriving.put(None)

    def line(self, pattern: str) -> re.Match[str]:
        """The next line that matches; those before it are kept in `lines`."""
        end = time.monotonic() + START_SECONDS
        while True:
            line = self._arriving.get(timeout=max(0.0, end - time.monotonic()))
            assert line is not None, "the process ended:\n" + "\n".join(self.lines)
            self.lines.append(line)
            if match := re.search(pattern, line):
                return match

    def end(self, seconds: float = 30.0) -> tuple[int, str]:
        """Wait for the end; exit status and stdout. The rest of stderr goes to `lines`."""
        status = self.process.wait(seconds)
        while (line := self._arriving.get(timeout=seconds)) is not None:
            self.lines.append(line)
        return status, self.process.stdout.read()


@contextmanager
def serving(*arguments: str, **options) -> Iterator[Process]:
    process = Process(*arguments, **options)
    try:
        yield process
    finally:
        process.process.kill()
        process.process.wait()


def test_serve_stream_drain_and_end(tiny_llama: Path):
    with serving(str(tiny_llama), "--port", "0", "--served-model-name", "tiny", "--device", "cpu") as server:
        url = server.line(r"ready on (http://\S+)")[1]
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        limit = client.models.retrieve("tiny").max_model_len
        body = {
            "model": "tiny",
            "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": limit - 60,
            "temperature": 0,
            "extra_body": {"ignore_eos": True},
        }
        whole = client.chat.completions.create(**body)
        stream = iter(client.chat.completions.create(**body, stream=True))
        begun = next(stream).choices[0].delta.content + next(stream).choices[0].delta.content
        server.process.send_signal(signal.SIGTERM)
        server.line(r"stopping: 1 in flight")
        assert httpx.get(f"{url}/health").json() == {"status": "draining"}
        with pytest.raises(openai.InternalServerError, match="draining") as refused:
            client.chat.completions.create(**body)
        assert refused.value.status_code == 503
        text = begun + "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        assert text == whole.choices[0].message.content
        assert server.end() == (0, "")
        finished = [line for line in server.lines if "finish=length" in line]
        assert len(finished) == 2
        assert f"generated={limit - 60}" in finished[0]


def test_a_second_signal_ends_at_once(tiny_llama: Path):
    with serving(str(tiny_llama), "--port", "0", "--device", "cpu") as server:
        url = server.line(r"ready on (http://\S+)")[1]
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        stream = client.completions.create(
            model=str(tiny_llama), prompt="hi", n=32, max_tokens=400, stream=True, extra_body={"ignore_eos": True}
        )
        next(iter(stream))
        server.process.send_signal(signal.SIGINT)
        server.line(r"stopping: 32 in flight")
        server.process.send_signal(signal.SIGINT)
        assert server.end(5)[0] == 130


def test_a_signal_before_the_server_serves_ends_it_in_good_order(tiny_llama: Path):
    with serving(str(tiny_llama), "--port", "0", "--device", "cpu") as server:
        server.line("loading")
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == (0, "")


def test_a_port_in_use_is_the_environments_fault(tiny_llama: Path, capsys: pytest.CaptureFixture[str]):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(tiny_llama), "--port", str(port)]) == 3
    said = capsys.readouterr()
    assert f"port {port}" in said.err and said.out == ""


def test_a_broken_shard_ends_the_server_with_its_name(tiny_llama: Path, tmp_path: Path):
    folder = tmp_path / "broken"
    folder.mkdir()
    for file in tiny_llama.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    shard = next(folder.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-100])
    with serving(str(folder), "--port", "0", "--device", "cpu") as server:
        status, out = server.end(60)
    assert (status, out) == (2, "")
    assert shard.name in "\n".join(server.lines)
    assert "Traceback" not in "\n".join(server.lines)


def test_the_key_comes_from_the_environment(tiny_llama: Path):
    with serving(str(tiny_llama), "--port", "0", "--device", "cpu", env={"DAY0_API_KEY": "open sesame"}) as server:
        url = server.line(r"ready on (http://\S+)")[1]
        assert httpx.get(f"{url}/v1/models").status_code == 401
        assert openai.OpenAI(base_url=f"{url}/v1", api_key="open sesame").models.list().data
        server.process.send_signal(signal.SIGTERM)
        assert server.end()[0] == 0
        assert "sesame" not in "\n".join(server.lines)


def other_ranks(server: Process) -> list[psutil.Process]:
    children = psutil.Process(server.process.pid).children()
    return [child for child in children if "day0.cli.rank" in child.cmdline()]


@pytest.mark.parametrize("ending", [pytest.param("SIGTERM", marks=pytest.mark.slow), "a rank dies"])
def test_ranks_serve_as_one_and_end_together(tiny_llama: Path, ending: str):
    """SIGTERM is a clean end; a rank that dies ends the service with status 3, its name and its log."""
    with serving(str(tiny_llama), "--port", "0", "--device", "cpu", "--tp", "2") as server:
        url = server.line(r"ready on (http://\S+)")[1]
        body = {"model": str(tiny_llama), "prompt": [5, 6, 7], "max_tokens": 4}
        assert httpx.post(f"{url}/v1/completions", json=body, timeout=60).json()["usage"]["completion_tokens"] > 0
        (rank,) = other_ranks(server)
        if ending == "SIGTERM":
            server.process.send_signal(signal.SIGTERM)
            assert server.end()[0] == 0
        else:
            rank.kill()
            assert server.end(60)[0] == 3
            said = "\n".join(server.lines)
            assert "rank 1 of 2 was killed by SIGKILL" in said and "rank-1.log" in said
        psutil.wait_procs([rank], timeout=10)
        assert not rank.is_running() or rank.status() == psutil.STATUS_ZOMBIE


def test_what_cannot_be_cut_is_refused(tiny_llama: Path):
    with serving(str(tiny_llama), "--port", "0", "--device", "cpu", "--tp", "7") as server:
        assert server.end()[0] == 2
        assert re.search(r"--tp: gqa-heads: \d+ gqa heads do not divide by 7 ranks", "\n".join(server.lines))


def test_dry_run_prints_the_command_and_starts_nothing(capsys: pytest.CaptureFixture[str]):
    assert main(["serve", "my model", "--dry-run", "--max-num-seqs", "4", "--api-key", "secret"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("DAY0_API_KEY=\"$DAY0_API_KEY\" day0 serve 'my model' --engine day0 --host 127.0.0.1 ")
    assert "--max-num-seqs 4 " in out and "secret" not in out
    assert "--prefix-caching" in out
    assert main(["serve", "my model", "--dry-run", "--no-prefix-caching"]) == 0
    assert "--no-prefix-caching" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--weight-budget", "5"], 2, "all weights stay on the device anyway"),
        (["--engine", "vllm"], 3, "vllm is not installed for"),
        (["--engine", "vllm", "--dry-run"], 2, "no-such-model"),
        (["--engine", "transformers", "--dry-run"], 2, "no-such-model"),
        (["--engine", "transformers", "--dry-run", "--plan", "p.yaml"], 2, "transformers takes no plan"),
        (["--engine", "sglang", "--offload", "disk", "--dry-run"], 2, "--offload"),
        (["--engine", "vllm", "--emit", "k8s", "--dry-run"], 2, "no-such-model"),
        (["--status-port", "1"], 2, "--status-port"),
        (["--engine", "tgi"], 2, "tgi"),
        (["--port", "70000"], 2, "65535"),
        (["--max-num-seqs", "0"], 2, "max_num_seqs"),
        (["--mem-fraction", "1.5"], 2, "mem_fraction"),
        (["--plan", "nowhere.yaml"], 2, "nowhere.yaml"),
        (["--api-key", ""], 2, "--api-key: the key is empty"),
        ([], 2, "no-such-model"),
    ],
)
def test_what_cannot_be_served_is_said(options, status, said, capsys: pytest.CaptureFixture[str]):
    assert main(["serve", "./no-such-model", *options]) == status
    captured = capsys.readouterr()
    assert said in captured.err and captured.out == ""


def test_a_recipe_has_no_weights_to_serve(capsys: pytest.CaptureFixture[str]):
    assert main(["serve", "recipe:llama-3.1-8b", "--port", "0"]) == 2
    assert "no weights" in capsys.readouterr().err
