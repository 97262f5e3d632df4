"""`day0 pull` as a process, against a hub on a real socket."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
import pytest
from safetensors.numpy import save

from day0.cli.main import main

if TYPE_CHECKING:
    from hub_server import FakeHub

REPO = "org/some-model"
WEIGHTS = "model.safetensors"


@pytest.fixture
def hub(fake_hub: FakeHub) -> FakeHub:
    fake_hub.files = {
        "config.json": b'{"model_type": "some"}',
        "tokenizer.json": b'{"version": "1.0"}',
        "modeling_some.py": b"raise SystemExit('never run this')",
        WEIGHTS: save({"embed.weight": numpy.arange(1 << 16, dtype=numpy.float32)}),
    }
    return fake_hub


def day0(hub: FakeHub, home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {"HF_ENDPOINT": hub.address, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", **more}
    command = [sys.executable, "-m", "day0.cli.main", *arguments]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    return subprocess.run(command, env=inherited | environment, capture_output=True, text=True, check=False)


def test_config_and_headers_then_weights(hub: FakeHub, tmp_path: Path) -> None:
    out = tmp_path / "pull.json"
    done = day0(hub, tmp_path / "home", "pull", REPO, "--json", "--output", str(out))
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)
    assert json.loads(out.read_text()) == first
    assert (first["schema"], first["weights"], first["tensors"], first["weight_bytes"]) == (
        "day0.pull/1", False, 1, 4 << 16,
    )  # fmt: skip
    assert [file["name"] for file in first["files"]] == ["config.json"]
    assert hub.weight_bytes_sent < 200

    done = day0(hub, tmp_path / "home", "pull", REPO, "--weights", "--json")
    assert done.returncode == 0, done.stderr
    second = json.loads(done.stdout)
    assert {file["name"] for file in second["files"]} == {"config.json", "tokenizer.json", WEIGHTS}
    assert second["bytes"] == sum(len(hub.files[file["name"]]) for file in second["files"])
    assert (Path(second["folder"]) / WEIGHTS).read_bytes() == hub.files[WEIGHTS]


def test_what_was_pulled_is_inspected_without_network(hub: FakeHub, tmp_path: Path) -> None:
    done = day0(hub, tmp_path, "pull", f"{REPO}@main")
    assert done.returncode == 0, done.stderr
    assert "1 tensors of 262,144 bytes" in done.stdout and "(headers only)" in done.stdout
    hub.down = 503
    shown = day0(hub, tmp_path, "inspect", f"{REPO}@main", "--json", HF_HUB_OFFLINE="1")
    assert shown.returncode in (1, 4), shown.stderr  # nobody knows this architecture
    document = json.loads(shown.stdout)
    assert "weights-not-cached" not in {finding["code"] for finding in document["findings"]}
    assert "embed.weight" in shown.stdout


def test_a_proxy_is_used(hub: FakeHub, tmp_path: Path) -> None:
    proxy = {"HTTP_PROXY": hub.address, "http_proxy": hub.address, "NO_PROXY": "", "no_proxy": ""}
    done = day0(hub, tmp_path, "pull", REPO, "--weights", HF_ENDPOINT="http://hub.invalid", **proxy)
    assert done.returncode == 0, done.stderr
    assert hub.proxied == {"hub.invalid"}


def test_altered_weights_are_the_environments_fault(hub: FakeHub, tmp_path: Path) -> None:
    hub.altered[WEIGHTS] = hub.files[WEIGHTS][:-1] + b"\x7f"
    done = day0(hub, tmp_path, "pull", REPO, "--weights", "--json")
    assert (done.returncode, done.stdout) == (3, "")
    assert f"removed from the cache: {WEIGHTS} (sha256" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob(WEIGHTS))


def test_without_network_nothing_can_be_checked(hub: FakeHub, tmp_path: Path) -> None:
    assert day0(hub, tmp_path, "pull", REPO).returncode == 0
    done = day0(hub, tmp_path, "pull", REPO, HF_HUB_OFFLINE="1")
    assert done.returncode == 3
    assert "HF_HUB_OFFLINE forbids to ask the hub for digests" in done.stderr


@pytest.mark.parametrize("model", ["recipe:kimi-k3", "./folder", "name", ""])
def test_only_models_of_a_hub(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", model]) == 2
    assert "is not a hub id" in capsys.readouterr().err
