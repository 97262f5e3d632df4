"""Trace points of sparse and compressed mixers and of hyper-connections: names, order and shapes of the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from block_sparse_configs import BLOCK, TEXT, whole
from latent_configs import DEEPSEEK_V4
from random_models import make_model, make_v4
from test_trace_points import sections

from day0.profile.profile import ArchitectureProfile
from day0.runtime.engine.engine import Engine
from day0.runtime.trace import Trace

TOKENS = 40
"""More entries and blocks than are chosen."""
Traced = tuple[ArchitectureProfile, dict[str, torch.Tensor]]


def trace_of(engine: Engine) -> Traced:
    kept = Trace()
    engine.forward([20 + place for place in range(TOKENS)], trace=kept)
    return engine.profile, kept.tensors


@pytest.fixture(scope="module")
def v4(tmp_path_factory: pytest.TempPathFactory, make_engine) -> Traced:
    folder = tmp_path_factory.mktemp("v4")
    make_v4(DEEPSEEK_V4, folder)
    return trace_of(make_engine(folder))


@pytest.fixture(scope="module")
def m3(tmp_path_factory: pytest.TempPathFactory, make_engine) -> Traced:
    folder = tmp_path_factory.mktemp("m3")
    make_model(whole(TEXT), folder)
    return trace_of(make_engine(folder))


def sizes(spec: Any) -> dict[str, int]:
    """What the words of the page stand for in a mixer."""
    attention = getattr(spec, "attention", spec)
    known = {"tokens": TOKENS, "heads": attention.num_heads, "head_dim": attention.head_dim}
    if hasattr(spec, "ratio"):
        known["entries"] = TOKENS // spec.ratio
    if hasattr(spec, "indexer"):
        known |= {"index_heads": spec.indexer.num_heads, "index_dim": spec.indexer.head_dim}
        known["chosen"] = spec.indexer.top_k
    if spec.kind == "block_sparse":
        known |= {"kv_heads": attention.num_kv_heads, "blocks": TOKENS // BLOCK}
    return known


@pytest.mark.parametrize(("model", "kind"), [("v4", "shared_kv"), ("v4", "hca"), ("v4", "csa"), ("m3", "block_sparse")])
def test_names_order_and_shapes_are_those_of_the_page(model: str, kind: str, request: pytest.FixtureRequest) -> None:
    profile, tensors = request.getfixturevalue(model)
    layer = next(layer for layer in profile.layers if layer.mixer.kind == kind)
    prefix = f"layers.{layer.index}."
    found = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(f"{prefix}mixer.")}
    rows = sections()[f"Mixer {kind}"]
    assert list(found) == list(rows)
    known = sizes(layer.mixer)
    assert {name: list(tensor.shape) for name, tensor in found.items()} == {
        name: [known[word] for word in words] for name, words in rows.items()
    }
    for name, tensor in found.items():
        integers = name.startswith("mixer.topk")
        assert (tensor.dtype == torch.int64) == integers, name


def test_what_hyper_connections_say(v4: Traced) -> None:
    profile, tensors = v4
    residual = profile.residual
    known = {"tokens": TOKENS, "mixing_weights": residual.num_weights, "streams": residual.streams}
    known["hidden"] = profile.hidden_size
    rows = sections()["Hyper-connections"]
    for layer in range(profile.num_layers):
        for name, words in rows.items():
            assert list(tensors[f"layers.{layer}.{name}"].shape) == [known[word] for word in words], name
        for name in ("mixer_mix", "ffn_mix"):
            assert tensors[f"layers.{layer}.{name}"].shape == (TOKENS, profile.hidden_size)
    assert "output_mix" not in tensors
    order = [re.sub(r"^layers\.0\.", "", name) for name in tensors if name.startswith("layers.0.")]
    page = list(sections()["A layer"])
    assert [name for name in order if name in page] == [name for name in page if name in order]


def test_compressed_entries_are_those_of_a_longer_prompt(v4: Traced, tmp_path: Path, make_engine) -> None:
    """An entry that is complete does not change with what follows."""
    make_v4(DEEPSEEK_V4, tmp_path)
    kept = Trace(only=("layers.1.mixer.compressed_kv",))
    make_engine(tmp_path).forward([20 + place for place in range(TOKENS - 7)], trace=kept)
    shorter = kept.tensors["layers.1.mixer.compressed_kv"]
    assert shorter.shape[0] == (TOKENS - 7) // 4
    torch.testing.assert_close(v4[1]["layers.1.mixer.compressed_kv"][: len(shorter)], shorter)
