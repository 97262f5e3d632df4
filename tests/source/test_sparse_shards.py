"""Checkpoints of headers alone: laid out as the format's own writer does, read by others, small on the disk."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save

from day0.errors import EnvironmentFault
from day0.source import sparse_shards
from day0.source.folder import read_folder
from day0.source.sparse_shards import (
    StoredTensor,
    disk_bytes,
    encode_header,
    split_evenly,
    usual_shards,
    write_sparse_checkpoint,
)

ARRAYS = {
    "layers.10.weight": numpy.zeros((3, 5), numpy.float32),
    "layers.9.weight": numpy.zeros((4, 1, 2), numpy.float32),
    "packed": numpy.zeros((7, 3), numpy.uint8),
    "embed.weight": numpy.zeros((11, 4), numpy.float16),
    "scalar": numpy.zeros((), numpy.int64),
    "empty": numpy.zeros((0, 6), numpy.float16),
}
WORDS = {"float32": "F32", "uint8": "U8", "float16": "F16", "int64": "I64"}
TENSORS = [StoredTensor(name, WORDS[str(array.dtype)], array.shape) for name, array in ARRAYS.items()]
GIB = 2**30
HUGE = [StoredTensor(f"layers.{layer}.weight", "BF16", (GIB,)) for layer in range(40)]


def test_the_header_is_that_of_the_formats_own_writer() -> None:
    header, data_bytes = encode_header(TENSORS)
    assert header + bytes(data_bytes) == save(ARRAYS, metadata={"format": "pt"})


@pytest.mark.parametrize("length", range(1, 10))
def test_data_begin_at_a_multiple_of_eight_bytes(length: int) -> None:
    assert len(encode_header([StoredTensor("x" * length, "U8", (3,))])[0]) % 8 == 0


def test_dtypes_of_less_than_a_byte() -> None:
    assert encode_header([StoredTensor("w", "F4", (3, 6))])[1] == 9


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(1, 60))
def test_shards_keep_the_order_and_are_nearly_equal(sizes: list[int], shards: int) -> None:
    tensors = [StoredTensor(str(place), "U8", (size,)) for place, size in enumerate(sizes)]
    groups = split_evenly(tensors, shards)
    assert [tensor for group in groups for tensor in group] == tensors
    assert len(groups) == min(shards, len(tensors))
    assert all(groups)
    most = max(sum(tensor.nbytes for tensor in group) for group in groups)
    assert most <= sum(sizes) / len(groups) + max(sizes)


def test_one_shard_for_about_five_gigabytes() -> None:
    assert [usual_shards(nbytes) for nbytes in (0, 1, 5 * 10**9, 5 * 10**9 + 1, 16 * 10**9)] == [1, 1, 1, 2, 4]


def test_what_was_asked_for_is_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert write_sparse_checkpoint(tmp_path, HUGE, 3) == 3
    files = read_folder(tmp_path, model_id="m")
    assert files.tensors is not None
    assert {name: (tensor.dtype, tensor.shape) for name, tensor in files.tensors.items()} == {
        tensor.name: (tensor.dtype, tensor.shape) for tensor in HUGE
    }
    assert files.shards == tuple(f"model-0000{number}-of-000003.safetensors" for number in (1, 2, 3))
    assert files.findings == ()
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == files.weight_bytes == 40 * 2 * GIB
    assert list(index["weight_map"]) == sorted(tensor.name for tensor in HUGE)


def test_eighty_gigabytes_take_no_room(tmp_path: Path) -> None:
    write_sparse_checkpoint(tmp_path, HUGE, 3)
    shards = list(tmp_path.glob("*.safetensors"))
    assert sum(shard.stat().st_size for shard in shards) > 80 * GIB
    assert sum(disk_bytes(shard) for shard in shards) < 1 << 20


def test_a_single_shard_has_no_index_and_others_read_zeros(tmp_path: Path) -> None:
    assert write_sparse_checkpoint(tmp_path, TENSORS, 1) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    with safe_open(tmp_path / "model.safetensors", framework="np") as shard:
        for name, array in ARRAYS.items():
            assert numpy.array_equal(shard.get_tensor(name), array)


def test_a_file_system_that_stores_holes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_shards, "disk_bytes", lambda path: path.stat().st_size)
    with pytest.raises(EnvironmentFault, match="stores holes in full") as caught:
        write_sparse_checkpoint(tmp_path, TENSORS, 1)
    assert (caught.value.where, list(tmp_path.iterdir())) == (str(tmp_path), [])


@pytest.mark.parametrize("elements", [2**63 - 1, 2**70])
def test_a_file_too_large_for_the_file_system_is_named(tmp_path: Path, elements: int) -> None:
    with pytest.raises(EnvironmentFault, match="takes no file of"):
        write_sparse_checkpoint(tmp_path, [StoredTensor("w", "U8", (elements,))], 1)
