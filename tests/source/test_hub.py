"""Reading models from a hub on a real socket: pinned, by ranges, through the cache; and what each refusal means."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
import pytest
from huggingface_hub import constants
from safetensors.numpy import save

from day0.errors import EnvironmentFault, InputError
from day0.source.folder import read_folder
from day0.source.hub import Hub

if TYPE_CHECKING:
    from hub_server import FakeHub

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "org/some-model"


def shard(*names: str, size: int = 8) -> bytes:
    return save({name: numpy.ones(size, numpy.float32) for name in names})


def header_bytes(hub: FakeHub) -> int:
    """Length prefixes and headers of all shards together."""
    shards = [data for name, data in hub.files.items() if name.endswith(".safetensors")]
    return sum(8 + int.from_bytes(data[:8], "little") for data in shards)


def fill(hub: FakeHub, size: int = 8) -> None:
    """Two shards with an index, a config and the small files around them."""
    shards = {
        "model-00001-of-00002.safetensors": ("embed.weight", "layers.0.weight"),
        "model-00002-of-00002.safetensors": ("norm.weight",),
    }
    index = {"metadata": {}, "weight_map": {name: file for file, names in shards.items() for name in names}}
    hub.files = {
        "config.json": b'{"model_type": "some"}',
        "generation_config.json": b'{"eos_token_id": 2}',
        "tokenizer.json": b"{}",
        "modeling_some.py": b"raise SystemExit('never run this')",
        "model.safetensors.index.json": json.dumps(index).encode(),
        "pytorch_model.bin": bytes(100),
        **{file: shard(*names, size=size) for file, names in shards.items()},
    }


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what the test session sets for everybody else: no network, and perhaps a token."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def hub(fake_hub: FakeHub, tmp_path: Path) -> Hub:
    fill(fake_hub)
    return Hub(endpoint=fake_hub.address, cache_dir=tmp_path / "cache", retries=2, retry_seconds=0.01)


def test_reads_config_and_headers_of_a_pinned_commit(fake_hub: FakeHub, hub: Hub) -> None:
    files = hub.read(REPO, "main")
    assert (files.id, files.revision, files.source) == (REPO, COMMIT, "hub")
    assert files.config == {"model_type": "some"}
    assert files.extras == {"generation_config.json": {"eos_token_id": 2}}
    assert files.tensors is not None
    assert set(files.tensors) == {"embed.weight", "layers.0.weight", "norm.weight"}
    assert files.tensors["norm.weight"].shape == (8,)
    assert files.shards == ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    assert set(files.file_names) == set(fake_hub.files)
    assert files.findings == ()
    resolved = [path for _, path, _ in fake_hub.requests if "/resolve/" in path]
    assert {path.split("/")[-2] for path in resolved if not path.endswith("/config.json")} == {COMMIT}
    assert not any(path.endswith((".py", ".bin")) for path in resolved)


def test_reads_headers_and_not_weights(fake_hub: FakeHub, hub: Hub) -> None:
    fill(fake_hub, size=4 << 20)  # shards of 32 and 16 MiB
    files = hub.read(REPO)
    assert files.weight_bytes == 3 * 4 * (4 << 20)
    assert fake_hub.weight_bytes_sent == header_bytes(fake_hub)


@pytest.mark.parametrize(("tensors", "shards"), [(1, 1), (3, 40), (12_000, 1)])
def test_headers_and_hardly_a_byte_more_cross_the_network(
    fake_hub: FakeHub, hub: Hub, tensors: int, shards: int
) -> None:
    names = [f"layers.{number}.a_rather_long_name_of_some_projection.weight" for number in range(tensors * shards)]
    fake_hub.files = {"config.json": b'{"model_type": "some"}'}
    for number in range(shards):
        data = shard(*names[number * tensors : (number + 1) * tensors], size=1)
        fake_hub.files[f"model-{number + 1:05}-of-{shards:05}.safetensors"] = data
    files = hub.read(REPO)
    assert files.tensors is not None and set(files.tensors) == set(names)
    assert header_bytes(fake_hub) <= fake_hub.weight_bytes_sent <= 1.05 * header_bytes(fake_hub)
    assert sum(path.endswith(".safetensors") for _, path, _ in fake_hub.requests) == 2 * shards


def test_headers_are_read_many_at_a_time(fake_hub: FakeHub, hub: Hub) -> None:
    fake_hub.files = {"config.json": b'{"model_type": "some"}'}
    for number in range(1, 25):
        fake_hub.files[f"model-{number:05}-of-00024.safetensors"] = shard(f"layers.{number}.weight")
    fake_hub.latency = 0.05
    files = hub.read(REPO)
    assert files.tensors is not None and len(files.tensors) == 24
    assert fake_hub.most_at_once >= 4


def test_server_without_ranges_is_not_read_to_the_end(fake_hub: FakeHub, hub: Hub) -> None:
    fill(fake_hub, size=16 << 20)
    fake_hub.ranges = False
    files = hub.read(REPO)
    assert files.tensors is not None and len(files.tensors) == 3
    assert files.weight_bytes == 3 * 4 * (16 << 20)


def test_transient_failures_are_retried(fake_hub: FakeHub, hub: Hub) -> None:
    hub.read(REPO)  # the small files are in the cache now
    fake_hub.broken_answers = 2
    assert hub.read(REPO).tensors is not None
    fake_hub.broken_answers = 100
    with pytest.raises(EnvironmentFault, match="answered HTTP 503") as caught:
        hub.read(REPO)
    assert caught.value.where == REPO


def test_busy_hub_is_asked_again_when_it_says(fake_hub: FakeHub, hub: Hub) -> None:
    fake_hub.busy, fake_hub.busy_headers = 1, {"Retry-After": "1"}
    begin = time.monotonic()
    assert hub.read(REPO).tensors is not None
    assert time.monotonic() - begin >= 1.0


@pytest.mark.parametrize(
    ("headers", "hint"),
    [({}, "later"), ({"Retry-After": "3600"}, "in 3600 s"), ({"RateLimit": '"a";r=0;t=90'}, "90 s")],
)
def test_hub_that_stays_busy(fake_hub: FakeHub, hub: Hub, headers: dict[str, str], hint: str) -> None:
    """One that asks for more patience than anybody has is not asked again."""
    fake_hub.busy, fake_hub.busy_headers = 1000, headers
    with pytest.raises(EnvironmentFault, match="answered HTTP 429: too many requests") as caught:
        hub.read(REPO)
    assert hint in caught.value.hint
    assert len(fake_hub.requests) == (1 if headers else 1 + hub.retries)


def test_header_reads_end_after_some_tries(fake_hub: FakeHub, hub: Hub) -> None:
    hub.read(REPO)
    fake_hub.requests.clear()
    fake_hub.broken_answers = 1000
    with pytest.raises(EnvironmentFault):
        hub.read(REPO)
    tries = [path for _, path, _ in fake_hub.requests if path.endswith("model-00001-of-00002.safetensors")]
    assert len(tries) == 1 + hub.retries


def test_broken_shard_is_named(fake_hub: FakeHub, hub: Hub) -> None:
    name = "model-00002-of-00002.safetensors"
    fake_hub.files[name] = fake_hub.files[name][:-3]
    with pytest.raises(InputError, match="is truncated") as caught:
        hub.read(REPO)
    assert caught.value.where == f"{REPO}@{COMMIT[:12]}/{name}"
    fake_hub.files[name] = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    with pytest.raises(InputError, match="LFS pointer"):
        hub.read(REPO)
    fake_hub.files[name] = b""
    with pytest.raises(InputError, match="is empty"):
        hub.read(REPO)


def test_shard_missing_in_the_repository(fake_hub: FakeHub, hub: Hub) -> None:
    del fake_hub.files["model-00002-of-00002.safetensors"]
    with pytest.raises(InputError, match=r"1 of 2 shards are missing: model-00002-of-00002.safetensors"):
        hub.read(REPO)


def test_token_is_sent_and_its_absence_explained(fake_hub: FakeHub, hub: Hub) -> None:
    fake_hub.token = "hf_right"
    with pytest.raises(InputError, match="no such model") as caught:
        hub.read(REPO)
    assert "HF_TOKEN" in caught.value.hint
    with_token = Hub(fake_hub.address, hub.cache_dir, token="hf_right")
    assert with_token.read(REPO).revision == COMMIT


def test_gated_model(fake_hub: FakeHub, hub: Hub) -> None:
    fake_hub.gated = True
    with pytest.raises(InputError, match="refuses access") as caught:
        hub.read(REPO)
    assert "licence" in caught.value.hint and "HF_TOKEN" in caught.value.hint


def test_unknown_repository_and_revision(hub: Hub) -> None:
    with pytest.raises(InputError, match="no such model"):
        hub.read("org/other-model")
    with pytest.raises(InputError, match="has no revision 'v9'"):
        hub.read(REPO, "v9")
    with pytest.raises(InputError, match="is not a hub id"):
        hub.read("org/--bad..name")


def test_repository_without_config(fake_hub: FakeHub, hub: Hub) -> None:
    fake_hub.files = {"model-q4.gguf": b"GGUF"}
    with pytest.raises(InputError, match=r"has no config.json") as caught:
        hub.read(REPO)
    assert "GGUF" in caught.value.hint


@pytest.mark.parametrize("status", [429, 500, 503])
def test_hub_that_is_down(fake_hub: FakeHub, hub: Hub, status: int) -> None:
    fake_hub.down = status
    with pytest.raises(EnvironmentFault, match=f"answered HTTP {status}"):
        hub.read(REPO)


def test_something_that_is_no_hub(fake_hub: FakeHub, hub: Hub) -> None:
    fake_hub.not_a_hub = True
    with pytest.raises(EnvironmentFault, match="does not answer like a hub"):
        hub.read(REPO)
    with pytest.raises(EnvironmentFault, match="is not the address of a hub"):
        Hub(endpoint="localhost:8080").read(REPO)


def test_unreachable_hub(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(EnvironmentFault, match="cannot reach") as caught:
            Hub(endpoint=address, cache_dir=tmp_path, retries=0).read(REPO)
    assert "HF_HUB_OFFLINE=1" in caught.value.hint


def test_fetched_weights_read_like_a_folder(fake_hub: FakeHub, hub: Hub) -> None:
    files = hub.read(REPO)
    folder = hub.fetch_weights(files)
    assert read_folder(folder, model_id="m").tensors == files.tensors
    assert (folder / "tokenizer.json").read_bytes() == b"{}"
    assert not (folder / "modeling_some.py").exists()
    assert not (folder / "pytorch_model.bin").exists()
    fake_hub.requests.clear()
    assert hub.read(REPO).tensors == files.tensors  # headers come from the cache now
    assert not any(path.endswith(".safetensors") for _, path, _ in fake_hub.requests)


def test_code_comes_only_where_it_is_asked_for(hub: Hub) -> None:
    folder = hub.fetch_weights(hub.read(REPO), code=True)
    assert (folder / "modeling_some.py").exists()
    assert not (folder / "pytorch_model.bin").exists()


SCRIPT = """
import sys
from day0.errors import Day0Error
from day0.source.resolve import resolve, with_weights
try:
    files = resolve(sys.argv[1])
    print(files.source, files.revision, len(files.tensors) if files.tensors is not None else None)
    print(*(finding.code for finding in files.findings))
    if "fetch" in sys.argv:
        print((with_weights(files).folder / "tokenizer.json").is_file())
except Day0Error as error:
    print(int(error.exit_code), error)
"""


def resolve_elsewhere(cache: Path, *arguments: str, **environment: str) -> list[str]:
    """Run `resolve` in a process of its own: the hub library reads its environment when it is imported."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        env={**os.environ, "HF_HOME": str(cache), "HF_HUB_DISABLE_TELEMETRY": "1", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_environment_is_honoured_and_the_cache_serves_offline(fake_hub: FakeHub, tmp_path: Path) -> None:
    fill(fake_hub)
    fake_hub.token = "hf_from_the_environment"
    online = {"HF_ENDPOINT": fake_hub.address, "HF_TOKEN": fake_hub.token}
    offline = {**online, "HF_HUB_OFFLINE": "1"}
    assert resolve_elsewhere(tmp_path, REPO, **offline)[0].startswith("3 ")
    assert resolve_elsewhere(tmp_path, f"{REPO}@main", **online) == [f"hub {COMMIT} 3", ""]
    asked = len(fake_hub.requests)
    assert resolve_elsewhere(tmp_path, f"{REPO}@{COMMIT}", **offline) == [f"hub {COMMIT} None", "weights-not-cached"]
    assert len(fake_hub.requests) == asked
    assert resolve_elsewhere(tmp_path, REPO, "fetch", **online)[-1] == "True"
    fake_hub.down = 503
    assert resolve_elsewhere(tmp_path, REPO, **offline) == [f"hub {COMMIT} 3", ""]
    assert resolve_elsewhere(tmp_path, REPO, **online) == [f"3 {REPO}: {fake_hub.address} answered HTTP 503"]
