"""Downloads over a real socket: cut connections, altered bytes, what stays in the cache, and headers kept for later."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
import pytest
from huggingface_hub import constants
from safetensors.numpy import save

from day0.errors import EnvironmentFault
from day0.source.hub import Hub

if TYPE_CHECKING:
    from hub_server import FakeHub

REPO = "org/some-model"
WEIGHTS = "model.safetensors"


@pytest.fixture
def hub(fake_hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    fake_hub.files = {
        "config.json": b'{"model_type": "some"}',
        "generation_config.json": b'{"eos_token_id": 2}',
        "tokenizer.json": b'{"version": "1.0"}',
        WEIGHTS: save({"embed.weight": numpy.arange(1 << 18, dtype=numpy.float32)}),
    }
    return Hub(fake_hub.address, tmp_path / "hub", retries=1, retry_seconds=0.01, keep_headers=True)


def cached_bytes(hub: Hub) -> int:
    """Bytes of the largest file in the cache, whatever its name."""
    assert hub.cache_dir is not None
    return max(path.stat().st_size for path in hub.cache_dir.rglob("*") if path.is_file())


def test_pull_without_weights_leaves_them_on_the_hub(fake_hub: FakeHub, hub: Hub) -> None:
    folder, checked = hub.pull(hub.read(REPO), weights=False)
    assert [(file.name, file.bytes, file.algorithm) for file in checked] == [
        ("config.json", 22, "git-sha1"),
        ("generation_config.json", 19, "git-sha1"),
    ]
    assert not (folder / WEIGHTS).exists()
    assert fake_hub.weight_bytes_sent < 200


def test_pull_with_weights_gives_the_digest_of_what_lies_there(fake_hub: FakeHub, hub: Hub) -> None:
    folder, checked = hub.pull(hub.read(REPO), weights=True)
    assert {file.name for file in checked} == set(fake_hub.files)
    weights = next(file for file in checked if file.name == WEIGHTS)
    assert (weights.algorithm, weights.digest) == (
        "sha256",
        hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest(),
    )
    assert (folder / WEIGHTS).read_bytes() == fake_hub.files[WEIGHTS]


def test_a_cut_transfer_goes_on_where_it_was_cut(fake_hub: FakeHub, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1 << 16)  # the library loses the piece that was under way
    files = hub.read(REPO)
    fake_hub.requests.clear()
    fake_hub.cuts = [600_000]
    folder, _ = hub.pull(files, weights=True)
    assert (folder / WEIGHTS).read_bytes() == fake_hub.files[WEIGHTS]
    ranges = [wanted for method, path, wanted in fake_hub.requests if method == "GET" and path.endswith(WEIGHTS)]
    assert len(ranges) == 2 and ranges[0] is None and ranges[1] is not None
    begin = int(ranges[1].removeprefix("bytes=").removesuffix("-"))
    assert 500_000 < begin <= 600_000


def test_a_broken_transfer_leaves_nothing_that_looks_whole(fake_hub: FakeHub, hub: Hub) -> None:
    files = hub.read(REPO)
    fake_hub.resets, fake_hub.cuts = True, [600_000, 600_000, 600_000]
    with pytest.raises(EnvironmentFault) as caught:  # two tries: both break
        hub.pull(files, weights=True)
    assert REPO in caught.value.where and "Traceback" not in str(caught.value)
    assert not any(path.name == WEIGHTS for path in Path(str(hub.cache_dir)).rglob("*"))
    assert cached_bytes(hub) < 1000
    folder, _ = hub.pull(files, weights=True)  # breaks once more, and then comes through
    assert fake_hub.cuts == []
    assert (folder / WEIGHTS).read_bytes() == fake_hub.files[WEIGHTS]


@pytest.mark.parametrize("whole_pull", [True, False])
def test_altered_weights_are_named_and_not_kept(fake_hub: FakeHub, hub: Hub, whole_pull: bool) -> None:
    """One byte of the numbers differs: neither header nor size shows it."""
    files = hub.read(REPO)
    fake_hub.altered[WEIGHTS] = fake_hub.files[WEIGHTS][:-1] + b"\x7f"
    with pytest.raises(EnvironmentFault, match=r"not what the hub lists.*: model\.safetensors \(sha256 ") as caught:
        hub.pull(files, weights=True) if whole_pull else hub.fetch_weights(files)
    assert REPO in caught.value.where and "run again" in caught.value.hint
    assert cached_bytes(hub) < 1000
    fake_hub.altered.clear()
    folder = hub.fetch_weights(files)
    assert (folder / WEIGHTS).read_bytes() == fake_hub.files[WEIGHTS]


def test_weights_of_another_size(fake_hub: FakeHub, hub: Hub) -> None:
    files = hub.read(REPO)
    fake_hub.altered[WEIGHTS] = fake_hub.files[WEIGHTS][:-4]
    with pytest.raises(EnvironmentFault, match=r"model\.safetensors \(1,048,\d+ bytes for 1,048,\d+\)"):
        hub.pull(files, weights=True)
    assert cached_bytes(hub) < 1000


def test_altered_config_is_named(fake_hub: FakeHub, hub: Hub) -> None:
    fake_hub.altered["config.json"] = b'{"model_type": "soma"}'
    files = hub.read(REPO)
    with pytest.raises(EnvironmentFault, match=r"config\.json \(git-sha1 "):
        hub.pull(files, weights=False)


def test_file_that_shrank_in_the_cache(fake_hub: FakeHub, hub: Hub) -> None:
    files = hub.read(REPO)
    folder, _ = hub.pull(files, weights=True)
    with (folder / WEIGHTS).open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(EnvironmentFault, match=r"model\.safetensors \(1,000 bytes for 1,048,"):
        hub.pull(files, weights=True)
    assert not (folder / WEIGHTS).exists()
    hub.pull(files, weights=True)
    assert (folder / WEIGHTS).read_bytes() == fake_hub.files[WEIGHTS]


def test_whole_files_are_not_downloaded_again(fake_hub: FakeHub, hub: Hub) -> None:
    files = hub.read(REPO)
    hub.pull(files, weights=True)
    sent = fake_hub.weight_bytes_sent
    hub.pull(files, weights=True)
    assert fake_hub.weight_bytes_sent == sent


def test_kept_headers_serve_later_reads_and_those_without_network(
    fake_hub: FakeHub, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = hub.read(REPO)
    sent = fake_hub.weight_bytes_sent
    assert hub.read(REPO).tensors == files.tensors
    assert fake_hub.weight_bytes_sent == sent
    fake_hub.requests.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    offline = hub.read(REPO)
    assert offline.tensors == files.tensors and offline.findings == ()
    assert fake_hub.requests == []


def test_kept_headers_are_no_weights(fake_hub: FakeHub, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.read(REPO)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(EnvironmentFault, match=r"1 of 1 shards are not in the hub cache: model\.safetensors") as caught:
        hub.fetch_weights(hub.read(REPO))
    assert "day0 pull" in caught.value.hint


def test_some_of_the_headers_are_not_taken_for_all(
    fake_hub: FakeHub, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = hub.read(REPO)
    assert files.revision is not None
    (hub.header_store(REPO, files.revision).folder / "complete").unlink()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert hub.read(REPO).tensors is None
