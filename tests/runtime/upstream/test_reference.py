"""The second opinion: names and shapes of its trace, and reasons instead of tracebacks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from upstream_models import make_remote_repository

from day0.errors import CannotSay, InputError
from day0.profile.read import read_profile
from day0.runtime.upstream.reference import load_reference, reference_trace
from day0.source.resolve import resolve


def load(folder: Path):
    files = resolve(str(folder))
    return load_reference(files, read_profile(files))


def test_the_trace_has_our_names_and_shapes(tiny_llama: Path) -> None:
    found = reference_trace(load(tiny_llama), [5, 9, 40])
    points = ("mixer_in", "mixer_out", "ffn_in", "ffn_out", "output")
    layers = {f"layers.{layer}.{point}" for layer in range(3) for point in points}
    assert set(found) == layers | {"embed", "norm", "logits"}
    assert [*found][:1] == ["embed"] and [*found][-1:] == ["logits"]
    assert all(len(tensor) == 3 and tensor.dtype == torch.float32 for tensor in found.values())


def test_residual_arithmetic_holds_in_the_trace(tiny_llama: Path) -> None:
    found = reference_trace(load(tiny_llama), [5, 9, 40])
    joined = found["embed"] + found["layers.0.mixer_out"] + found["layers.0.ffn_out"]
    torch.testing.assert_close(joined, found["layers.0.output"])


def test_hooks_are_gone_afterwards(tiny_llama: Path) -> None:
    decoder = load(tiny_llama)
    kept = reference_trace(decoder, [1, 2])["embed"]
    before = kept.clone()
    decoder.upstream(torch.tensor([[7, 8]]))
    assert torch.equal(kept, before)


def test_code_of_a_repository_is_no_reference(tmp_path: Path) -> None:
    make_remote_repository(tmp_path / "sum")
    with pytest.raises(CannotSay, match="is not run"):
        load(tmp_path / "sum")


def test_missing_weights_and_unknown_architectures_have_a_reason(tiny_llama: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((tiny_llama / "config.json").read_text())
    with pytest.raises(InputError, match="no weights in safetensors"):
        load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nobody_knows_this"}))
    with pytest.raises(CannotSay, match="nobody_knows_this"):
        load(tmp_path)
