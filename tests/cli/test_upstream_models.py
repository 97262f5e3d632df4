"""Commands on a model that our blocks do not run: transformers does, and what is weaker is said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import openai
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "runtime"))

from upstream_models import CONFIGS, keep_code_in, make_model, make_remote_repository

from day0.cli.main import main

PROMPT = [40, 41, 42, 50, 60]


@pytest.fixture(scope="module")
def gpt2(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of no family that day0 knows, with the tokenizer of our tiny checkpoints."""
    folder = tmp_path_factory.mktemp("gpt2")
    sizes = CONFIGS["gpt2"] | {"vocab_size": 320, "n_positions": 256, "bos_token_id": 256, "eos_token_id": 257}
    with patch.dict(CONFIGS, {"gpt2": sizes}):
        make_model("gpt2", folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (tiny_llama / name).is_file():
            (folder / name).write_bytes((tiny_llama / name).read_bytes())
    return folder


def test_a_quick_checklist_ends_with_a_verdict_and_names_what_is_weaker(
    gpt2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--checklist", "quick", "--device", "cpu", "--runtime", "upstream", "--report-dir", str(tmp_path)]
    status = main(["run-checklist", str(gpt2), *options, "--json"])
    document = json.loads(capsys.readouterr().out)
    checks = {check["id"]: check for phase in document["phases"] for check in phase["checks"]}
    open_checks = {name: check["message"] for name, check in checks.items() if check["status"] not in ("pass", "na")}
    assert (status, document["verdict"]) == (0, "ready"), open_checks
    assert document["environment"]["runtime"] == "upstream"
    assert any("one after another" in limit for limit in document["limits"])
    assert "one after another" in (tmp_path / "report.html").read_text()
    assert main(["run-checklist", str(gpt2), *options, "--phase", "startup"]) == 4
    assert "weaker: sequences of a step run one after another" in capsys.readouterr().out


def test_code_of_a_repository_is_run_only_with_the_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_code_in(tmp_path / "modules", monkeypatch)
    make_remote_repository(tmp_path / "sum")
    options = [
        str(tmp_path / "sum"),
        "--checklist",
        "quick",
        "--device",
        "cpu",
        "--report-dir",
        str(tmp_path / "report"),
    ]
    assert main(["run-checklist", *options, "--json"]) == 4
    document = json.loads(capsys.readouterr().out)
    told = [check for phase in document["phases"] for check in phase["checks"] if check["id"] == "loading.parameters"]
    assert "is not run" in told[0]["message"] and "--trust-remote-code" in told[0]["hint"]
    assert not (tmp_path / "sum" / "was-run").exists()
    assert main(["run-checklist", *options, "--json", "--trust-remote-code"]) == 4  # it has no tokenizer to check
    assert (tmp_path / "sum" / "was-run").exists()
    document = json.loads(capsys.readouterr().out)
    checks = [check for phase in document["phases"] for check in phase["checks"]]
    assert {check["id"] for check in checks if check["status"] not in ("pass", "na", "warn")} == {"startup.tokenizer"}
    assert "code of the model's own repository" in document["limits"][0]


def test_a_runtime_that_there_is_not_is_refused(gpt2: Path) -> None:
    assert main(["serve", str(gpt2), "--runtime", "best"]) == 2


def test_another_engine_is_told_that_code_of_a_repository_may_run(
    gpt2: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(gpt2), "--engine", "vllm", "--trust-remote-code", "--dry-run"]) == 0
    assert "--trust-remote-code" in capsys.readouterr().out


def test_a_dry_run_spells_the_choice_out(gpt2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(gpt2), "--dry-run", "--trust-remote-code", "--runtime", "upstream"]) == 0
    line = capsys.readouterr().out
    assert "--trust-remote-code" in line and "--runtime upstream" in line


def test_a_server_answers_the_official_client_and_logs_what_is_weaker(gpt2: Path) -> None:
    command = [sys.executable, "-m", "day0.cli.main", "serve", str(gpt2), "--port", "0", "--device", "cpu"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert process.stderr is not None
    lines: list[str] = []
    try:
        for line in process.stderr:
            lines.append(line)
            if "ready" in line.lower():
                break
        url = next(word for line in lines for word in line.split() if word.startswith("http://")).rstrip("/.,")
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)
        options = {"model": str(gpt2), "prompt": PROMPT, "max_tokens": 6, "temperature": 0}
        whole = client.completions.create(**options).choices[0]
        streamed = "".join(chunk.choices[0].text for chunk in client.completions.create(**options, stream=True))
        assert whole.text == streamed and whole.finish_reason in ("length", "stop")
        assert client.models.list().data[0].max_model_len == 256
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    assert any(line.startswith("weaker: transformers") for line in lines)
