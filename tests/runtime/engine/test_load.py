from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from day0.errors import CannotSay, InputError
from day0.plan.settings import EngineSettings
from day0.profile.cache_sizes import cache_sizes
from day0.profile.parameters import weight_formats
from day0.profile.read import read_profile
from day0.runtime.engine.load import load_engine
from day0.source.resolve import resolve

SETTINGS = EngineSettings(device="cpu", dtype="float32", max_num_seqs=2)


def load(model: str | Path, settings: EngineSettings = SETTINGS, **options):
    files = resolve(str(model))
    return load_engine(files, read_profile(files), settings, **options)


@pytest.fixture
def copy(tiny_llama: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_llama, tmp_path / "model")


def test_phases_come_in_order_with_their_seconds(tiny_llama: Path) -> None:
    seen: list[tuple[str, float]] = []
    load(tiny_llama, on_phase=lambda name, seconds: seen.append((name, seconds)))
    assert [name for name, _ in seen] == ["load", "allocate", "warmup"]
    assert all(seconds > 0 for _, seconds in seen)


@pytest.mark.parametrize(
    ("settings", "where"), [({"kv_dtype": "fp3"}, "--kv-dtype"), ({"max_model_len": 10**9}, "max_position_embeddings")]
)
def test_settings_that_cannot_be_are_refused_before_the_weights_load(
    tiny_llama: Path, settings: dict[str, Any], where: str
) -> None:
    files, phases = resolve(str(tiny_llama)), list[str]()
    with pytest.raises(InputError) as caught:
        load_engine(files, read_profile(files), EngineSettings(**settings), lambda name, _: phases.append(name))
    assert (caught.value.where, phases) == (where, [])


@pytest.mark.parametrize("recipe", ["llama-3.1-8b", "qwen3-30b-a3b", "kimi-k3"])
def test_memory_is_what_the_profile_says(tiny, recipe: str) -> None:
    engine = load(tiny(recipe))
    formats = weight_formats(engine.profile)
    # Read as float32: bfloat16 doubles, float32 stays, packed bytes stay.
    padding = sum(
        layer.mixer.head_dim - layer.mixer.num_heads for layer in engine.profile.layers if layer.mixer.kind == "kda"
    )
    held = 2 * formats.get("bf16", 0) + formats.get("f32", 0) - 4 * padding + formats.get("mxfp4", 0)
    assert engine.memory.weight_bytes == held
    sizes = cache_sizes(engine.profile, "fp32", "fp32")
    assert engine.memory.kv_bytes == engine.memory.num_pages * 16 * sizes.kv_bytes_per_token
    assert engine.memory.state_bytes == 2 * sizes.state_bytes_per_sequence
    assert (engine.memory.workspace_bytes > 0) == (recipe == "kimi-k3")
    assert engine.load_report.unwritten == ()


@pytest.mark.parametrize("experts", [1, 5, 16, 100])
def test_the_workspace_is_as_large_as_the_settings_say_and_changes_nothing(tiny_kimi_k3: Path, experts: int) -> None:
    engine = load(tiny_kimi_k3, EngineSettings(device="cpu", dtype="float32", workspace_experts=experts))
    assert engine.memory.workspace_bytes == min(experts, 16) * 3 * 96 * 64 * 4
    assert torch.equal(engine.forward([5, 6, 7]), load(tiny_kimi_k3).forward([5, 6, 7]))


def test_a_recipe_has_no_weights() -> None:
    with pytest.raises(InputError, match="has no weights to load"):
        load("recipe:kimi-k3")


def renamed(folder: Path, **changes: object) -> Path:
    config = json.loads((folder / "config.json").read_text())
    changes = {"model_type": "novel", "architectures": ["NovelForCausalLM"], **changes}
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


def test_a_family_under_another_name_is_loaded_as_the_one_it_fits_whole(tiny_llama: Path, copy: Path) -> None:
    assert torch.equal(load(renamed(copy)).forward([5, 6, 7]), load(tiny_llama).forward([5, 6, 7]))


def test_an_unknown_family_cannot_be_loaded(copy: Path) -> None:
    with pytest.raises(CannotSay, match="'novel'"):
        load(renamed(copy, num_hidden_layers=2))  # the third layer's tensors are then nobody's


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ({"rope_type": "dynamic"}, "rope scaling 'dynamic' without factor"),
    ],
)
def test_a_rotary_rule_that_the_runtime_lacks_is_named(copy: Path, rule: dict[str, object], named: str) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"rope_scaling": rule}))
    with pytest.raises(CannotSay, match=named):
        load(copy, replace(SETTINGS, runtime="native"))  # transformers has rules of its own


def test_a_packing_that_is_not_read_cannot_be_loaded(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "unheard-of"}}))
    with pytest.raises(CannotSay, match="unheard-of"):
        load(copy)


def test_a_packing_that_the_runtime_lacks_is_named(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    section = {"quant_method": "awq", "bits": 8, "group_size": 32, "zero_point": True}
    for shard in copy.glob("*.safetensors"):
        tensors = load_file(shard)
        for name in [name for name in tensors if "_proj.weight" in name]:
            rows, columns = tensors.pop(name).shape
            stem = name.removesuffix("weight")
            tensors[f"{stem}qweight"] = torch.zeros(columns, rows // 4, dtype=torch.int32)
            tensors[f"{stem}qzeros"] = torch.zeros(columns // 32, rows // 4, dtype=torch.int32)
            tensors[f"{stem}scales"] = torch.ones(columns // 32, rows)
        save_file(tensors, shard)
    (copy / "model.safetensors.index.json").unlink()
    (copy / "config.json").write_text(json.dumps(config | {"quantization_config": section}))
    with pytest.raises(CannotSay, match=r"this packing \(attention: awq_int8; dense_mlp: awq_int8\)"):
        load(copy)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_do_not_reach_a_user(copy: Path, bad: float) -> None:
    shard = next(iter(copy.glob("*00001*.safetensors")))
    tensors = load_file(shard)
    tensors["model.layers.0.self_attn.q_proj.weight"][0] = bad
    save_file(tensors, shard, metadata={"format": "pt"})
    with pytest.raises(InputError, match="not finite"):
        load(copy)
