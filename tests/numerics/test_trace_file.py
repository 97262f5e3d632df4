"""Stored traces: what is read, what is left, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from day0.errors import InputError
from day0.numerics.trace_file import read_trace


def stored(path: Path, **changes: torch.Tensor | None) -> Path:
    tensors = {
        "input_ids": torch.tensor([3, 1, 4]), "logits": torch.ones(3, 8), "layers.0.output": torch.ones(3, 4),
        "long.logits": torch.ones(2, 8),
    } | changes  # fmt: skip
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, path)
    return path


def test_reads_ids_and_our_points_only(tmp_path: Path) -> None:
    found = read_trace(stored(tmp_path / "t.safetensors"))
    assert found.token_ids == (3, 1, 4)
    assert set(found.tensors) == {"logits", "layers.0.output"}


@pytest.mark.parametrize("missing", ["input_ids", "logits"])
def test_without_ids_or_logits_it_is_refused(tmp_path: Path, missing: str) -> None:
    with pytest.raises(InputError, match="input_ids"):
        read_trace(stored(tmp_path / "t.safetensors", **{missing: None}))


def test_ids_that_are_no_ids_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="whole numbers"):
        read_trace(stored(tmp_path / "t.safetensors", input_ids=torch.tensor([0.5])))


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, b"\x10" + b"\0" * 7 + b"{}"])
def test_a_broken_file_is_the_users_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.safetensors"
    path.write_bytes(content)
    with pytest.raises(InputError, match="safetensors"):
        read_trace(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_trace(tmp_path / "absent.safetensors")
