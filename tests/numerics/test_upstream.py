"""The transformers side: names and shapes of its trace, and reasons instead of tracebacks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from day0.errors import CannotSay
from day0.numerics.upstream import knows, load_upstream, trace_upstream


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("llama")
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def test_trace_has_our_names_and_shapes(llama: Path) -> None:
    model = load_upstream(llama)
    found = trace_upstream(model, [5, 9, 40])
    points = ("mixer_in", "mixer_out", "ffn_in", "ffn_out", "output")
    names = {"embed", "norm", "logits"} | {f"layers.{layer}.{point}" for layer in (0, 1) for point in points}
    assert set(found) == names
    assert found["logits"].shape == (3, 96)
    assert all(tensor.shape == (3, 32) for name, tensor in found.items() if name != "logits")
    assert all(tensor.dtype == torch.float32 for tensor in found.values())


def test_residual_arithmetic_holds_in_the_trace(llama: Path) -> None:
    found = trace_upstream(load_upstream(llama), [5, 9, 40])
    joined = found["embed"] + found["layers.0.mixer_out"] + found["layers.0.ffn_out"]
    torch.testing.assert_close(joined, found["layers.0.output"])


def test_hooks_are_gone_afterwards(llama: Path) -> None:
    model = load_upstream(llama)
    first = trace_upstream(model, [1, 2])
    kept = first["embed"].clone()
    model(torch.tensor([[7, 8]]))
    assert torch.equal(first["embed"], kept)


def test_an_unknown_architecture_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nobody_knows_this"}))
    reason = knows(tmp_path)
    assert reason is not None and "nobody_knows_this" in reason
    with pytest.raises(CannotSay):
        load_upstream(tmp_path)


def test_missing_weights_have_a_reason(llama: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((llama / "config.json").read_text())
    with pytest.raises(CannotSay, match="does not load"):
        load_upstream(tmp_path)
