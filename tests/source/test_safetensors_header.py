"""Safetensors headers: real files read, and every way to break one refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save, save_file

from day0.errors import InputError
from day0.source.safetensors_header import MAX_HEADER_BYTES, ShardHeader, parse_header, read_header


def encode(header: Any, payload: int = 0) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(payload)


def entry(begin: int, end: int, dtype: str = "U8", shape: list[int] | None = None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


def parse(data: bytes) -> ShardHeader:
    return parse_header(data, len(data), shard="model.safetensors", where="/models/m/model.safetensors")


def test_header_of_a_real_file_agrees_with_its_bytes(tmp_path: Path) -> None:
    arrays = {
        "b": numpy.arange(6, dtype=numpy.float32).reshape(2, 3),
        "a": numpy.arange(5, dtype=numpy.int64),
        "scalar": numpy.array(3.5, dtype=numpy.float16),
        "empty": numpy.zeros((0, 7), dtype=numpy.float32),
    }
    path = tmp_path / "model.safetensors"
    save_file(arrays, path, metadata={"format": "np"})
    header = read_header(path, shard=path.name)
    assert header.metadata == {"format": "np"}
    assert set(header.tensors) == set(arrays)
    data = path.read_bytes()
    for name, array in arrays.items():
        tensor = header.tensors[name]
        assert tensor.shape == array.shape
        assert tensor.shard == "model.safetensors"
        assert data[tensor.begin : tensor.end] == array.tobytes()


def test_sub_byte_dtypes_are_packed() -> None:
    header = parse(encode({"w": entry(0, 12, "F4", [3, 8]), "v": entry(12, 18, "F6_E2M3", [8])}, 18))
    assert header.tensors["w"].nbytes == 12
    with pytest.raises(InputError, match="does not fill whole bytes"):
        parse(encode({"w": entry(0, 2, "F4", [3])}, 2))


def test_file_without_tensors_is_valid() -> None:
    assert parse(encode({})).tensors == {}


ENTRY = b'{"dtype":"U8","shape":[4],"data_offsets":[0,4]}'
BROKEN = {
    "unknown dtype": (encode({"w": entry(0, 4, "F3")}, 4), "tensor w: unknown dtype 'F3'"),
    "wrong size": (encode({"w": entry(0, 4, "F32", [2])}, 4), "takes 8 bytes, but its offsets"),
    "end before begin": (encode({"w": entry(4, 0, "U8", [4])}, 4), "tensor w"),
    "negative shape": (encode({"w": entry(0, 4, "U8", [-2, -2])}, 4), "tensor w"),
    "fractional shape": (encode({"w": entry(0, 4, "U8", [4.0])}, 4), "tensor w"),
    "boolean shape": (encode({"w": entry(0, 1, "U8", [True])}, 1), "tensor w"),
    "negative offset": (encode({"w": entry(-4, 0, "U8", [4])}, 4), "tensor w"),
    "three offsets": (encode({"w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4, 4]}}, 4), "tensor w"),
    "no shape": (encode({"w": {"dtype": "U8", "data_offsets": [0, 4]}}, 4), "tensor w"),
    "entry is a list": (encode({"w": [1]}, 4), "tensor w"),
    "overlap": (encode({"w": entry(0, 4), "v": entry(2, 6)}, 6), "tensor v overlaps tensor w"),
    "twice the same bytes": (encode({"w": entry(0, 4), "v": entry(0, 4)}, 4), "overlaps"),
    "hole": (encode({"w": entry(0, 4), "v": entry(5, 9)}, 9), "tensor v leaves a hole after tensor w"),
    "hole at the start": (encode({"w": entry(4, 8)}, 8), "leaves a hole after the header"),
    "truncated data": (encode({"w": entry(0, 104)}, 4), "is truncated"),
    "surplus data": (encode({"w": entry(0, 4)}, 7), "3 bytes that no tensor owns"),
    "empty file": (b"", "is empty"),
    "four bytes": (b"\x01\0\0\0", "has 4 bytes"),
    "truncated header": (encode({"w": entry(0, 4)}, 4)[:20], "truncated inside its header"),
    "huge header": ((2**40).to_bytes(8, "little") + b"{}", "declares a header of 1,099,511,627,776 bytes"),
    "not JSON": (encode(b"{nonsense"), "not valid JSON"),
    "not an object": (encode(b"[]"), "not a JSON object"),
    "leading blank": (encode(b" {}"), "not a JSON object"),
    "not UTF-8": (encode(b'{"\xff": 1}'), "not valid JSON"),
    "deep nesting": (encode(b'{"w":' + b"[" * 100_000), "not valid JSON"),
    "metadata not text": (encode({"__metadata__": {"a": 1}}), "__metadata__ must map text to text"),
    "name twice": (
        encode(b'{"w":' + ENTRY + b',"w":' + ENTRY + b"}", 4),
        "names 'w' twice",
    ),
    "escaped name twice": (
        encode(b'{"w":' + ENTRY + b',"\\u0077":' + ENTRY + b"}", 4),
        "names 'w' twice",
    ),
    "field twice": (
        encode(b'{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"data_offsets":[0,4]}}', 4),
        "names 'data_offsets' twice",
    ),
    "LFS pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 77\n",
        "Git LFS pointer for a file of 77",
    ),
}


FORBIDDEN_BUT_READ = {"leading blank", "name twice", "escaped name twice"}
"""The format's text rules these out; its own reader lets them pass."""


@pytest.mark.parametrize("case", BROKEN)
def test_broken_header_is_refused_by_name(case: str, tmp_path: Path) -> None:
    data, words = BROKEN[case]
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_header(path, shard=path.name)
    assert words in caught.value.message
    assert caught.value.where == str(path)
    if case not in FORBIDDEN_BUT_READ:
        with pytest.raises(SafetensorError):  # the format's own reader agrees that this is no good file
            deserialize(data)


def test_names_like_fields_are_no_duplicates() -> None:
    header = parse(
        encode({"data_offsets": entry(0, 4), "w": entry(4, 8), "__metadata__": {"data_offsets": "x", "dtype": "y"}}, 8)
    )
    assert set(header.tensors) == {"data_offsets", "w"}


def test_length_limit_is_the_formats_own() -> None:
    over = (MAX_HEADER_BYTES + 1).to_bytes(8, "little")
    with pytest.raises(InputError, match="more than the 100,000,000"):
        parse_header(over, 2 * MAX_HEADER_BYTES, shard="s", where="s")


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_header(tmp_path / "absent.safetensors", shard="absent.safetensors")
    with pytest.raises(InputError, match="is not a file"):
        read_header(tmp_path, shard="folder")


@given(st.data())
def test_a_flipped_byte_never_escapes_as_another_error(data: st.DataObject) -> None:
    """Whatever a damaged header says, it is read or refused with InputError."""
    good = save({"layers.0.weight": numpy.zeros((2, 3), numpy.float32), "b": numpy.zeros(5, numpy.uint8)})
    broken = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        broken[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        parse(bytes(broken))
    except InputError as error:
        assert error.where == "/models/m/model.safetensors"
