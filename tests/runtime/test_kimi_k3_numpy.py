"""The runtime against a slow float64 decoder in numpy, on a random checkpoint with every feature on."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from closeness import relative_error
from kimi_k3_numpy import Checkpoint, KimiK3

from day0.runtime.engine.engine import Engine
from day0.runtime.ops.registry import choose_operators
from day0.runtime.trace import Trace

LIMIT = 1e-4
LAYERS = range(9)
KDA_LAYERS = (0, 1, 2, 4, 5, 6)
KERNELS = {"reference": {}, "chunked": {"kda_chunk": "day0-chunked"}}


Answers = Callable[[int], dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def answers(tiny_kimi_k3: Path) -> Answers:
    """`answers(length)`: what the slow decoder says of the prompt of that length, each computed once."""
    slow = KimiK3(tiny_kimi_k3)
    return cache(lambda length: slow.forward(prompt(length)))


@pytest.fixture(scope="module", params=KERNELS)
def engine(request: pytest.FixtureRequest, tiny_kimi_k3: Path, make_engine) -> Engine:
    ops = choose_operators(torch.device("cpu"), torch.float32, forced=KERNELS[request.param])
    return make_engine(tiny_kimi_k3, ops=ops)


def prompt(length: int) -> list[int]:
    generator = random.Random(length)
    return [generator.randrange(320) for _ in range(length)]


@pytest.mark.parametrize("length", [1, 3, 33, 100])
def test_logits_layers_and_states(engine: Engine, answers: Answers, length: int) -> None:
    wanted = answers(length)
    kept = Trace()
    engine.forward(prompt(length), trace=kept)
    found = kept.tensors
    errors = {name: relative_error(found[name], wanted[name]) for name in ("norm", "logits")}
    for layer in LAYERS:
        for name in (f"layers.{layer}.mixer_out", f"layers.{layer}.output"):
            errors[name] = relative_error(found[name], wanted[name])
    for layer in KDA_LAYERS:
        errors[f"state {layer}"] = relative_error(found[f"layers.{layer}.mixer.state"], wanted[f"layers.{layer}.state"])
        past = np.stack([wanted[f"layers.{layer}.conv_state.{axis}"] for axis in "qkv"])
        errors[f"conv state {layer}"] = relative_error(found[f"layers.{layer}.mixer.conv_state"], past)
    assert {name: error for name, error in errors.items() if not error < LIMIT} == {}


def test_the_same_experts_with_the_same_weights(engine: Engine, answers: Answers) -> None:
    wanted = answers(33)
    kept = Trace(only=tuple(f"layers.{layer}.ffn.topk" for layer in LAYERS))
    engine.forward(prompt(33), trace=kept)
    for layer in LAYERS[1:]:
        shares = torch.zeros(33, 16)
        ids, weights = (kept.tensors[f"layers.{layer}.ffn.topk_{name}"] for name in ("ids", "weights"))
        assert relative_error(shares.scatter_(1, ids, weights), wanted[f"layers.{layer}.expert_shares"]) < LIMIT


@pytest.mark.parametrize(("length", "chunk"), [(33, 1), (100, 7), (100, 16), (100, 64)])
def test_chunks_and_cached_decode_give_what_the_whole_gives(
    engine: Engine, answers: Answers, length: int, chunk: int
) -> None:
    logits = engine.forward(prompt(length), chunk=chunk)
    assert relative_error(logits, engine.forward(prompt(length))) < 2e-5
    assert relative_error(logits, answers(length)["logits"]) < LIMIT


def test_bfloat16_stays_near(tiny_kimi_k3: Path, make_engine, answers: Answers) -> None:
    kept = Trace()
    engine = make_engine(tiny_kimi_k3, dtype="bfloat16")
    logits = engine.forward(prompt(33), trace=kept)
    assert logits.dtype == torch.float32
    # Further down a router may choose another expert for a rounding error, and then numbers part ways.
    assert 1e-4 < relative_error(kept.tensors["layers.0.output"], answers(33)["layers.0.output"]) < 0.02
    assert relative_error(logits, answers(33)["logits"]) < 0.7
    assert engine.cache.storage.state(0, "recurrent").dtype == torch.float32
    assert engine.cache.storage.state(0, "conv").dtype == torch.bfloat16


def test_a_narrower_cache_stays_near_and_can_be_traced(tiny_kimi_k3: Path, make_engine, answers: Answers) -> None:
    kept = Trace()
    logits = make_engine(tiny_kimi_k3, kv_dtype="bfloat16").forward(prompt(33), trace=kept)
    assert 1e-5 < relative_error(logits, answers(33)["logits"]) < 0.05
    assert kept.tensors["layers.3.mixer.k_nope"].shape == (33, 6, 24)


def test_numpy_reads_packed_bytes_as_the_worked_example_says(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    # Low half of a byte first: 0x10 is 0 then 0.5, 0x8f is -6 then -0; 127 stands for a factor of 1, 129 for 4.
    packed = torch.tensor([[0x10, 0x8F] + [0] * 14, [0x72, 0x3A] + [0] * 14], dtype=torch.uint8)
    save_file(
        {"w_packed": packed, "w_scale": torch.tensor([[127], [129]], dtype=torch.uint8)}, tmp_path / "a.safetensors"
    )
    values = Checkpoint(tmp_path).expert("w")
    assert values[:, :4].tolist() == [[0.0, 0.5, -6.0, -0.0], [4.0, 24.0, -4.0, 6.0]]
    assert not values[:, 4:].any()
