from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from day0.errors import InputError
from day0.profile.read import read_profile
from day0.profile.tensors import compare_tensors, expected_tensors
from day0.runtime.models.decoder import Decoder
from day0.runtime.models.packed import pack_modules
from day0.runtime.ops.registry import choose_operators
from day0.runtime.quant.workspace import Workspace
from day0.runtime.vision.model import VisionModel
from day0.runtime.weights import LoadReport, all_parameters, load_weights
from day0.source.resolve import resolve

CPU = torch.device("cpu")
RECIPES = ("llama-3.1-8b", "qwen3-0.6b", "mixtral-8x7b", "qwen3-30b-a3b", "kimi-k3")


def make_modules(folder: Path, dtype: torch.dtype = torch.float32):
    files = resolve(str(folder))
    profile = read_profile(files)
    with torch.device("meta"):
        modules = {"": Decoder(profile, choose_operators(CPU, dtype))}
        if profile.vision is not None:
            modules["vision."] = VisionModel(profile.vision, choose_operators(CPU, dtype))
    pack_modules(modules, profile, Workspace(dtype, CPU))
    return modules, expected_tensors(profile), files


def load(folder: Path, dtype: torch.dtype = torch.float32) -> tuple[dict[str, torch.Tensor], LoadReport]:
    modules, specs, files = make_modules(folder, dtype)
    report = load_weights(modules, specs, files, dtype, CPU)
    return all_parameters(modules), report


Edit = Callable[[dict[str, torch.Tensor]], None]


def edited(folder: Path, tmp_path: Path, edit: Edit) -> Path:
    """A copy of a checkpoint with `edit` applied to all its tensors, in one shard."""
    copy = tmp_path / "edited"
    copy.mkdir()
    shutil.copy(folder / "config.json", copy)
    tensors: dict[str, torch.Tensor] = {}
    for shard in folder.glob("*.safetensors"):
        tensors |= load_file(shard)
    edit(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, copy / "model.safetensors")
    return copy


Q_PROJ = "model.layers.1.self_attn.q_proj.weight"
A_LOG = "language_model.model.layers.0.self_attn.A_log"
PACKED = "language_model.model.layers.1.block_sparse_moe.experts.3.w1.weight_packed"
SCALE = "language_model.model.layers.1.block_sparse_moe.experts.3.w1.weight_scale"


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_parameter_is_written_and_every_tensor_read_once(tiny, recipe: str) -> None:
    parameters, report = load(tiny(recipe))
    files = resolve(str(tiny(recipe)))
    assert report.unwritten == ()
    assert report.tensors == len(files.tensors)
    assert report.bytes_read == files.weight_bytes
    assert report.bytes_held == sum(parameter.nbytes for parameter in parameters.values())
    assert not any(parameter.isnan().any() for parameter in parameters.values() if parameter.is_floating_point())


@pytest.mark.parametrize("recipe", RECIPES)
def test_paths_of_profile_and_modules_are_the_same(tiny, recipe: str) -> None:
    modules, specs, _ = make_modules(tiny(recipe))
    assert {spec.path for spec in specs} == all_parameters(modules).keys()


def test_values_arrive_where_they_belong(tiny_kimi_k3: Path) -> None:
    parameters, _ = load(tiny_kimi_k3)
    stored: dict[str, torch.Tensor] = {}
    for shard in tiny_kimi_k3.glob("*.safetensors"):
        stored |= load_file(shard)
    assert torch.equal(parameters["layers.1.ffn.experts.gate.packed"][3], stored[PACKED])
    assert torch.equal(parameters["layers.1.ffn.experts.gate.scale"][3], stored[SCALE])
    up = PACKED.replace("w1", "w3")
    assert torch.equal(parameters["layers.1.ffn.experts.up.packed"][3], stored[up])
    assert torch.equal(parameters["layers.0.mixer.A_log"], stored[A_LOG][:12])
    assert torch.equal(parameters["embed.weight"], stored["language_model.model.embed_tokens.weight"].float())


def test_some_stay_float32_in_a_bfloat16_model(tiny_kimi_k3: Path) -> None:
    parameters, _ = load(tiny_kimi_k3, torch.bfloat16)
    wide = {name.rpartition("layers.")[2] for name, p in parameters.items() if p.dtype == torch.float32}
    leaves = {name.partition(".")[2] for name in wide}
    assert leaves == {
        *(f"mixer.{axis}_conv.weight" for axis in "qkv"),
        "mixer.A_log",
        "mixer.dt_bias",
        "mixer.o_norm.weight",
        "ffn.router.correction_bias",
    }
    assert parameters["embed.weight"].dtype == torch.bfloat16
    assert parameters["layers.1.ffn.experts.gate.packed"].dtype == torch.uint8


def test_what_nobody_wrote_is_poison(tiny_kimi_k3: Path) -> None:
    modules, specs, files = make_modules(tiny_kimi_k3)
    report = load_weights(modules, (), files, torch.float32, CPU)
    assert len(report.unwritten) == len(specs)
    for name, parameter in all_parameters(modules).items():
        if parameter.dtype == torch.uint8:
            assert (parameter == 255).all(), name
        else:
            assert parameter.isnan().all(), name


def test_a_parameter_nobody_wrote_is_reported_and_shows(tiny_llama: Path) -> None:
    modules, specs, files = make_modules(tiny_llama)
    specs = tuple(spec for spec in specs if spec.path != "layers.1.mixer.q_proj.weight")
    report = load_weights(modules, specs, files, torch.float32, CPU)
    assert report.unwritten == ("layers.1.mixer.q_proj.weight",)
    assert all_parameters(modules)["layers.1.mixer.q_proj.weight"].isnan().all()


def test_an_expert_nobody_wrote_is_not_a_number(tiny_kimi_k3: Path) -> None:
    modules, specs, files = make_modules(tiny_kimi_k3)
    lacking = tuple(
        replace(spec, experts=3) if spec.path == "layers.1.ffn.experts.up.scale" else spec for spec in specs
    )
    load_weights(modules, lacking, files, torch.float32, CPU)
    sound = {one.expert: bool(one.up.isfinite().all()) for one in modules[""].layers[1].ffn.experts.matrices([2, 3])}
    assert sound == {2: True, 3: False}


def test_a_missing_tensor_is_named(tiny_llama: Path, tmp_path: Path) -> None:
    folder = edited(tiny_llama, tmp_path, lambda tensors: tensors.pop(Q_PROJ))
    with pytest.raises(InputError, match=f"lacks 1 tensors.*{Q_PROJ}"):
        load(folder)
    files = resolve(str(folder))
    assert compare_tensors(read_profile(files), files).missing == (Q_PROJ,)


def test_many_missing_tensors_are_counted(tiny_kimi_k3: Path, tmp_path: Path) -> None:
    def drop(tensors: dict[str, torch.Tensor]) -> None:
        for name in [name for name in tensors if ".experts.3." in name]:
            del tensors[name]

    with pytest.raises(InputError, match=r"lacks 48 tensors .* and 45 more"):  # 8 layers x 3 matrices x 2 parts
        load(edited(tiny_kimi_k3, tmp_path, drop))


@pytest.mark.parametrize("shape", [(64, 63), (63, 64), (64,), (1, 64, 64), (64, 128)])
def test_a_wrong_shape_is_named_with_both(tiny_llama: Path, tmp_path: Path, shape: tuple[int, ...]) -> None:
    folder = edited(tiny_llama, tmp_path, lambda tensors: tensors.update({Q_PROJ: torch.zeros(shape)}))
    with pytest.raises(InputError) as caught:
        load(folder)
    assert str(list(shape)) in caught.value.message
    assert "[64, 64]" in caught.value.message
    assert caught.value.where == f"model.safetensors: {Q_PROJ}"


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64, torch.bool, torch.float8_e4m3fn])
def test_numbers_of_another_kind_are_not_copied(tiny_llama: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    folder = edited(tiny_llama, tmp_path, lambda tensors: tensors.update({Q_PROJ: tensors[Q_PROJ].to(dtype)}))
    with pytest.raises(InputError, match=f"is stored as {dtype}, expected torch.float32"):
        load(folder)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_packed_bytes_must_be_bytes(tiny_kimi_k3: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    folder = edited(tiny_kimi_k3, tmp_path, lambda tensors: tensors.update({PACKED: tensors[PACKED].to(dtype)}))
    with pytest.raises(InputError, match=f"is stored as {dtype}, expected torch.uint8"):
        load(folder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_another_plain_float_is_read(tiny_llama: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    folder = edited(tiny_llama, tmp_path, lambda tensors: tensors.update({Q_PROJ: tensors[Q_PROJ].to(dtype)}))
    found, wanted = (load(model)[0]["layers.1.mixer.q_proj.weight"] for model in (folder, tiny_llama))
    assert torch.allclose(found, wanted, atol=1e-4)


@pytest.mark.parametrize("length", [12, 13, 16, 128])
def test_a_zero_tail_of_any_length_is_allowed(tiny_kimi_k3: Path, tmp_path: Path, length: int) -> None:
    def pad(tensors: dict[str, torch.Tensor]) -> None:
        tensors[A_LOG] = torch.cat((tensors[A_LOG][:12], torch.zeros(length - 12)))

    folder = edited(tiny_kimi_k3, tmp_path, pad)
    files = resolve(str(folder))
    assert compare_tensors(read_profile(files), files).sound
    assert torch.equal(load(folder)[0]["layers.0.mixer.A_log"], load(tiny_kimi_k3)[0]["layers.0.mixer.A_log"])


@pytest.mark.parametrize("value", [1e-30, -1.0, float("nan")])
def test_a_tail_that_is_not_zero_is_refused(tiny_kimi_k3: Path, tmp_path: Path, value: float) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> None:
        tensors[A_LOG][15] = value

    with pytest.raises(InputError, match="entries from 12 on must be zero") as caught:
        load(edited(tiny_kimi_k3, tmp_path, spoil))
    assert A_LOG in caught.value.where


def test_a_tensor_shorter_than_its_live_part_is_refused(tiny_kimi_k3: Path, tmp_path: Path) -> None:
    folder = edited(tiny_kimi_k3, tmp_path, lambda tensors: tensors.update({A_LOG: torch.zeros(11)}))
    with pytest.raises(InputError, match=r"has shape \[11\]"):
        load(folder)


@pytest.mark.parametrize("cut", [100, 10_000])
def test_a_shard_that_was_cut_since_its_header_was_read(tiny_llama: Path, tmp_path: Path, cut: int) -> None:
    folder = shutil.copytree(tiny_llama, tmp_path / "model")
    modules, specs, files = make_modules(folder)
    shard = folder / "model-00002-of-000002.safetensors"
    with shard.open("r+b") as file:
        file.truncate(shard.stat().st_size - cut)
    with pytest.raises(InputError, match="cannot be read") as caught:
        load_weights(modules, specs, files, torch.float32, CPU)
    assert caught.value.where == shard.name


def test_a_shard_that_is_gone(tiny_llama: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_llama, tmp_path / "model")
    modules, specs, files = make_modules(folder)
    (folder / "model-00001-of-000002.safetensors").unlink()
    with pytest.raises(InputError, match="cannot be read"):
        load_weights(modules, specs, files, torch.float32, CPU)


def test_a_head_stored_beside_tied_embeddings_is_not_used(tiny_qwen3: Path, tmp_path: Path) -> None:
    head = torch.full((320, 64), 9.0)
    folder = edited(tiny_qwen3, tmp_path, lambda tensors: tensors.update({"lm_head.weight": head}))
    files = resolve(str(folder))
    comparison = compare_tensors(read_profile(files), files)
    assert [finding.code for finding in comparison.findings] == ["tied-head-stored"]
    assert comparison.sound
    parameters, _ = load(folder)
    assert "lm_head.weight" not in parameters
    assert torch.equal(parameters["embed.weight"], load(tiny_qwen3)[0]["embed.weight"])


def test_shards_are_read_forwards(tiny_kimi_k3: Path) -> None:
    from day0.runtime.weights import _by_shard

    _, specs, files = make_modules(tiny_kimi_k3)
    index = json.loads((tiny_kimi_k3 / "model.safetensors.index.json").read_text())["weight_map"]
    for shard, reads in _by_shard(specs, files.tensors).items():
        begins = [files.tensors[read.name].begin for read in reads]
        assert begins == sorted(begins)
        assert {index[read.name] for read in reads} == {shard}


def test_what_is_held_as_it_is_stored_is_mapped_and_stays_apart_from_the_file(tiny_llama: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_llama, tmp_path / "model")
    before = {shard.name: shard.read_bytes() for shard in folder.glob("*.safetensors")}
    parameters, report = load(folder, torch.bfloat16)
    assert report.bytes_mapped == report.bytes_held == report.bytes_read
    parameters["embed.weight"].zero_()
    assert {shard.name: shard.read_bytes() for shard in folder.glob("*.safetensors")} == before
    again, _ = load(folder, torch.bfloat16)
    assert again["embed.weight"].any()
    assert load(folder, torch.float32)[1].bytes_mapped == 0


def test_stacked_experts_are_copied_and_the_rest_is_mapped(tiny_kimi_k3: Path) -> None:
    parameters, report = load(tiny_kimi_k3, torch.bfloat16)
    copied = sum(parameter.nbytes for path, parameter in parameters.items() if ".experts." in path)
    cut = sum(parameter.nbytes for path, parameter in parameters.items() if path.endswith("A_log"))
    assert 0 <= report.bytes_held - report.bytes_mapped - copied <= cut
