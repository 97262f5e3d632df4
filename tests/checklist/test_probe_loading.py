"""What the loading probes say of weights that are odd in one known way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from day0.checklist import probe_loading, probe_packed
from day0.checklist.checklist import Measured, NotChecked
from day0.checklist.probe_faults_inside import _kept
from day0.checklist.probe_loading import layer_in, parameters_of
from day0.checklist.probe_paths import engine_of
from day0.checklist.probe_second_decoder import mxfp4
from day0.checklist.probe_stored import same_values
from day0.checklist.target import CheckContext
from day0.profile import packing_formats
from day0.profile.read import read_profile

FORMAT = packing_formats.mxfp4()


def measured(outcome: object) -> Measured:
    assert isinstance(outcome, Measured)
    return outcome


def test_the_second_decoder_on_a_row_worked_out_by_hand() -> None:
    packed = np.array([[0xE8, 0x9E, 0xC3, 0x5F] + [0] * 12], dtype=np.uint8)
    found = mxfp4(FORMAT, {"packed": packed, "scale": np.array([[123]], dtype=np.uint8)}, 1, 32)
    scale = 2.0**-4
    wanted = [-0.0, -4 * scale, -4 * scale, -0.5 * scale, 1.5 * scale, -2 * scale, -6 * scale, 3 * scale]
    assert found[0, :8].tolist() == wanted and not found[0, 8:].any()


def test_the_second_decoder_keeps_groups_apart_and_knows_nan() -> None:
    packed = np.full((1, 32), 0x22, dtype=np.uint8)
    found = mxfp4(FORMAT, {"packed": packed, "scale": np.array([[128, 255]], dtype=np.uint8)}, 1, 64)
    assert (found[0, :32] == 2.0).all() and np.isnan(found[0, 32:]).all()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_one_value_that_is_not_finite_is_found_and_placed(llama: CheckContext, value: float) -> None:
    path, parameter = next(
        (path, parameter)
        for path, parameter in parameters_of(engine_of(llama)).items()
        if path.startswith("layers.1.ffn.") and parameter.dim() == 2
    )
    with _kept(parameter):
        parameter.data[-1, -1] = value
        found = measured(probe_loading.parameters(llama))
    assert found.values["not_finite"] == 1
    assert found.where is not None and (found.where.layer, found.where.tensor) == (1, path)


def test_a_matrix_of_one_number_is_constant_and_a_norm_of_ones_is_not(llama: CheckContext) -> None:
    parameters = parameters_of(engine_of(llama))
    matrix = next(parameter for path, parameter in parameters.items() if path.startswith("layers.0.ffn."))
    norm = parameters["layers.0.mixer_norm.weight"]
    with _kept(matrix, norm):
        matrix.data.fill_(0.0)
        norm.data.fill_(1.0)
        found = measured(probe_loading.parameters(llama))
    assert found.values["constant"] == 1 and found.values["not_finite"] == 0


def test_one_expert_that_was_never_written(kimi_k3: CheckContext) -> None:
    parameters = parameters_of(engine_of(kimi_k3))
    path = next(path for path in parameters if path.endswith("experts.up.packed"))
    with _kept(parameters[path]):
        parameters[path].data[3] = 255
        found = measured(probe_loading.parameters(kimi_k3))
    assert found.values["unwritten"] == 1
    assert found.where is not None and found.where.tensor == path


def test_one_wrong_value_in_one_expert(kimi_k3: CheckContext) -> None:
    parameters = parameters_of(engine_of(kimi_k3))
    path = next(path for path in parameters if path.endswith("experts.down.packed"))
    with _kept(parameters[path]):
        parameters[path].data[0, 0, 0] += 1
        assert measured(probe_packed.packed(kimi_k3)).values["wrong"] == 1
        assert measured(probe_loading.values(kimi_k3, tensors=10_000)).values["wrong"] == 1
    assert measured(probe_packed.packed(kimi_k3)).values["wrong"] == 0


def test_unexpected_tensors_are_counted_and_named(llama: CheckContext) -> None:
    tensors = dict(llama.files.tensors or {})
    tensors["model.layers.0.self_attn.indexer.weight"] = next(iter(tensors.values()))
    found = measured(probe_loading.headers(replace(llama, files=replace(llama.files, tensors=tensors))))
    assert found.values["unexpected"] == 1 and "indexer" in found.message


def test_a_model_read_as_a_family_it_does_not_name_is_counted(llama: CheckContext) -> None:
    assert measured(probe_loading.headers(llama)).values["guessed_family"] == 0
    config = llama.files.config | {"model_type": "nobody_knows", "architectures": ["NobodyKnows"]}
    files = replace(llama.files, config=config)
    guessed = measured(probe_loading.headers(replace(llama, files=files, profile=read_profile(files))))
    assert (guessed.values["guessed_family"], guessed.values["missing"]) == (1, 0)


def test_a_source_without_headers_is_not_checked(llama: CheckContext) -> None:
    bare = replace(llama, files=replace(llama.files, tensors=None))
    assert isinstance(probe_loading.headers(bare), NotChecked)


def test_layer_numbers_in_paths() -> None:
    assert [layer_in(path) for path in ("layers.12.mixer.q.weight", "embed.weight", "vision.layers.1", None)] == [
        12, None, None, None,
    ]  # fmt: skip


def test_values_are_compared_after_the_rounding_to_the_held_dtype() -> None:
    stored = torch.tensor([[1.0, 1.0 + 2**-12]])
    assert same_values(stored.to(torch.bfloat16), stored)
    assert not same_values((stored + 0.1).to(torch.bfloat16), stored)
