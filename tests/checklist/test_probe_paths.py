"""Paths through an engine: where they part is named, near ties are not parting, siblings share nothing but weights."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from day0.checklist.probe_faults_inside import _hooked, _kept, patched
from day0.checklist.probe_paths import (
    PathErrors,
    engine_of,
    first_difference,
    forward_outputs,
    logit_allowance,
    node_place,
    recorded,
    rounding_noise,
    sibling,
    traced_outputs,
)
from day0.checklist.prompts import prompt_ids
from day0.checklist.target import CheckContext
from day0.numerics.compare import Node


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("block", ["mixer", "ffn"])
def test_a_block_that_is_a_little_off_is_named(llama: CheckContext, layer: int, block: str) -> None:
    engine = engine_of(llama)
    ids = prompt_ids(llama, 0, 30)
    errors = PathErrors(rounding_noise(engine, ids, forward_outputs))
    whole = forward_outputs(engine, ids)
    with _hooked(engine.model.get_submodule(f"layers.{layer}.{block}"), lambda _, output: output * 1.001):
        changed = forward_outputs(engine, ids)
    errors.compare("changed", changed, whole)
    found = errors.measured(llama.profile, "")
    assert found.where is not None
    assert (found.where.layer, found.where.tensor) == (layer, f"layers.{layer}.{block}_out")
    assert found.where.operator == ("gqa" if block == "mixer" else "dense")
    assert found.values["error_over_tolerance"] > 10


def test_sound_paths_stay_below_a_third_of_the_tolerance(llama: CheckContext, qwen3_moe: CheckContext) -> None:
    for context in (llama, qwen3_moe):
        engine = engine_of(context)
        for index in range(3):
            ids = prompt_ids(context, index, 50)
            errors = PathErrors(rounding_noise(engine, ids, forward_outputs))
            whole = forward_outputs(engine, ids)
            for chunk in (1, 7, 16, 33):
                errors.compare(str(chunk), forward_outputs(engine, ids, chunk), whole)
            assert errors.over is not None and errors.over < 0.34


def test_nan_and_stuck_outputs_give_no_number_and_so_fail(llama: CheckContext) -> None:
    engine = engine_of(llama)
    ids = prompt_ids(llama, 0, 20)
    whole = forward_outputs(engine, ids)
    for broken in (whole["logits"] * float("nan"), whole["logits"][:1].expand_as(whole["logits"])):
        errors = PathErrors(rounding_noise(engine, ids, forward_outputs))
        errors.compare("x", whole | {"logits": broken}, whole)
        found = errors.measured(llama.profile, "")
        assert found.values["error_over_tolerance"] is None
        assert found.where is not None and found.where.tensor == "logits"


def test_recording_ends_with_its_block(llama: CheckContext) -> None:
    engine = engine_of(llama)
    with recorded(engine) as outputs:
        engine.forward([1, 2, 3])
    engine.forward([4, 5])
    assert outputs.parts["layers.0.mixer_out"][0].shape[0] == 3
    assert len(outputs.parts["layers.0.mixer_out"]) == 1


def test_noise_leaves_the_engine_as_it_was(llama: CheckContext) -> None:
    engine = engine_of(llama)
    ids = prompt_ids(llama, 1, 12)
    before = engine.forward(ids)
    rounding_noise(engine, ids, traced_outputs)
    assert torch.equal(engine.forward(ids), before)
    assert engine.stats().pages_free == engine.stats().pages_total


def test_answers_that_part_at_a_near_tie_agree(llama: CheckContext) -> None:
    engine = engine_of(llama)
    prompt = prompt_ids(llama, 0, 10)
    logits = engine.forward(prompt)[-1]
    best, second = logits.topk(2).indices.tolist()
    worst = int(logits.argmin())
    assert first_difference(engine, prompt, [best, 1], [best, 1]) is None
    assert first_difference(engine, prompt, [best, 1], [worst, 1]) == 0
    assert first_difference(engine, prompt, [best], [best, 1]) == 1
    head = engine.model.embed.weight if engine.model.lm_head is None else engine.model.lm_head.weight
    with _kept(head):
        head.data[second] = head[best] * (1 + 1e-7)
        assert first_difference(engine, prompt, [best, 1], [second, 2]) is None


def test_the_allowance_of_a_logit_is_small(llama: CheckContext) -> None:
    engine = engine_of(llama)
    prompt = prompt_ids(llama, 0, 10)
    logits = engine.forward(prompt)[-1]
    assert 0 < logit_allowance(engine, prompt, logits) < 1e-3 * float(logits.abs().max())


def test_a_sibling_has_its_own_cache_and_the_same_weights(llama: CheckContext) -> None:
    engine = engine_of(llama)
    other = sibling(engine, replace(engine.settings, max_model_len=64, max_num_seqs=2, kv_cache_bytes=None))
    assert other.model is engine.model and other.cache is not engine.cache
    assert other.max_model_len == 64
    ids = prompt_ids(llama, 2, 20)
    assert torch.equal(other.forward(ids), engine.forward(ids))


def test_points_of_a_layer_are_named_by_what_computes_them(kimi_k3: CheckContext) -> None:
    def place(name: str, layer: int | None, operator: str) -> str | None:
        node = Node(name, layer, operator, "deviates", "deviation", 1.0, 0.1)
        return node_place(node, kimi_k3.profile).operator

    kinds = {layer.mixer.kind for layer in kimi_k3.profile.layers}
    assert place("layers.0.mixer_in", 0, "mixer_in") == "rms_norm"
    assert place("layers.0.mixer.q", 0, "mixer.q") in kinds
    assert place("layers.1.ffn.topk_ids", 1, "ffn.topk_ids") == kimi_k3.profile.layers[1].feed_forward.kind
    assert place("logits", None, "logits") == "logits"


def test_patches_are_taken_back_whether_own_or_inherited() -> None:
    class Owner:
        def method(self) -> int:
            return 1

    owner = Owner()
    with patched(owner, "method", lambda: 2):
        assert owner.method() == 2
    assert owner.method() == 1 and "method" not in vars(owner)
    with patched(Owner, "method", lambda self: 3):
        assert owner.method() == 3
    assert owner.method() == 1
