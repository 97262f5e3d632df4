"""The record of a published model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError

import pytest
from safetensors import SafetensorError, deserialize

from day0.source.model_files import DTYPE_BITS, ModelFiles, TensorHeader


def files(tensors: Mapping[str, TensorHeader] | None) -> ModelFiles:
    return ModelFiles("m", None, "folder", None, {}, "config.json", tensors, (), (), {})


def test_weight_bytes_is_the_sum_of_the_tensors() -> None:
    tensors = {"a": TensorHeader("F32", (3,), "s", 100, 112), "b": TensorHeader("U8", (5,), "s", 112, 117)}
    assert files(tensors).weight_bytes == 17
    assert files({}).weight_bytes == 0
    assert files(None).weight_bytes is None


def test_record_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        files(None).id = "other"  # type: ignore[misc]


@pytest.mark.parametrize("dtype", DTYPE_BITS)
def test_dtype_widths_are_those_of_the_format(dtype: str) -> None:
    """Eight elements take as many bytes as one element has bits; the format's own reader refuses any other size."""
    bits = DTYPE_BITS[dtype]
    text = f'{{"w":{{"dtype":"{dtype}","shape":[8],"data_offsets":[0,{bits}]}}}}'.encode()
    data = len(text).to_bytes(8, "little") + text + bytes(bits)
    assert deserialize(data)[0][1]["shape"] == [8]
    with pytest.raises(SafetensorError):
        deserialize(data + b"\0")
