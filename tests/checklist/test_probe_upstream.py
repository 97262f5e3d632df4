"""The checks of a model that transformers runs: they pass on a sound one and fail on a broken one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "runtime"))

from upstream_models import make_model

from day0.checklist import probe_loading, probe_numerics, probe_stability, probe_startup, probe_upstream
from day0.checklist.checklist import Measured, NotChecked
from day0.checklist.probe_runtime import RuntimeTarget
from day0.checklist.target import CheckContext
from day0.plan.settings import EngineSettings
from day0.profile.read import read_profile
from day0.runtime.upstream.sessions import CacheCost, CacheUse, Sessions
from day0.source.resolve import resolve


def context_of(folder: Path) -> CheckContext:
    files = resolve(str(folder))
    settings = EngineSettings(device="cpu", dtype="float32", runtime="upstream")
    target = RuntimeTarget(files, read_profile(files), settings, None)
    return CheckContext(files, target.profile, target, "transformers")


@pytest.fixture(scope="module", params=["gpt2", "jamba"])
def context(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CheckContext]:
    folder = tmp_path_factory.mktemp(request.param)
    make_model(request.param, folder)
    yield context_of(folder)


def measured(outcome: object) -> dict[str, object]:
    assert isinstance(outcome, Measured)
    return dict(outcome.values)


def decoder_of(context: CheckContext):
    return probe_upstream._decoder(context.target.engine())


def test_headers_are_held_against_what_there_is_to_hold(context: CheckContext) -> None:
    found = measured(probe_loading.headers(context))
    assert (found["missing"], found["mismatched"], found["unexpected"]) == (0, 0, 0)


def test_a_value_that_is_not_the_stored_one_is_found(context: CheckContext) -> None:
    sound = measured(probe_loading.values(context, tensors=1000))
    assert sound["wrong"] == 0 and sound["tensors"] > 10
    weight = decoder_of(context).embed.weight
    weight[3, 1] += 1
    assert measured(probe_loading.values(context, tensors=1000))["wrong"] == 1
    weight[3, 1] -= 1


def test_sizes_are_those_of_the_stored_tensors(context: CheckContext) -> None:
    assert measured(probe_loading.sizes(context))["difference"] == 0
    decoder = decoder_of(context)
    decoder.upstream.register_parameter("twin", torch.nn.Parameter(torch.zeros(10), requires_grad=False))
    try:
        assert measured(probe_loading.sizes(context))["difference"] == 40
    finally:
        del decoder.upstream.twin


def test_a_cache_that_takes_more_than_planned_or_stays_is_found(
    context: CheckContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert measured(probe_startup.cache(context))["kv_bytes_beyond_formula"] == 0
    decoder = decoder_of(context)
    cost = decoder.cost
    monkeypatch.setattr(decoder, "cost", CacheCost(cost.per_token - 1, cost.per_sequence))
    assert measured(probe_startup.cache(context))["kv_bytes_beyond_formula"] == 40
    monkeypatch.setattr(Sessions, "forget", lambda self, slot: None)
    assert measured(probe_startup.cache(context))["left_bytes"] > 0


def test_a_cache_that_is_relied_on_too_far_is_found(context: CheckContext, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = measured(probe_numerics.chunked(context, length=30, chunks=[4]))
    assert sound["error_over_tolerance"] <= 1
    if decoder_of(context).cache_use is CacheUse.STEPS:
        monkeypatch.setattr(decoder_of(context), "cache_use", CacheUse.CHUNKS)
        assert measured(probe_numerics.chunked(context, length=30, chunks=[4]))["error_over_tolerance"] > 1


def test_pressure_and_reused_memory_change_nothing(context: CheckContext) -> None:
    pressed = measured(probe_stability.pressure(context, length=16, max_tokens=40))
    assert pressed["different"] == 0 and pressed["preemptions"] > 0
    assert measured(probe_stability.stale(context, rounds=1))["different"] == 0


def test_transformers_is_no_reference_for_itself(context: CheckContext) -> None:
    outcome = probe_numerics.reference(context)
    assert isinstance(outcome, NotChecked) and "nothing independent" in outcome.reason


def test_a_checkpoint_that_lacks_a_tensor_is_not_loaded(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    make_model("gpt2", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["transformer.h.0.ln_1.bias"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    context = replace(context_of(tmp_path), reference="runtime")
    assert measured(probe_loading.headers(context))["missing"] is None
    assert measured(probe_loading.parameters(context))["loaded"] is False
