"""Each packed format against a small checkpoint written as its public specification says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import save_file

from day0.profile.parameters import count_parameters, stored_formats, weight_formats
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.profile.tensors import compare_tensors, expected_tensors
from day0.source.resolve import resolve

HIDDEN, WIDTH, VOCAB, EXPERTS = 128, 320, 64, 3
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
MOE = LLAMA | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "head_dim": 32,
    "num_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": WIDTH,
    "norm_topk_prob": True,
}
GPT_OSS = LLAMA | {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "head_dim": 32,
    "num_local_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"],
}
F8, U8, I8, I32, I64 = torch.float8_e4m3fn, torch.uint8, torch.int8, torch.int32, torch.int64
BF16, F32, F16, E8M0 = torch.bfloat16, torch.float32, torch.float16, torch.float8_e8m0fnu

Parts = dict[str, tuple[torch.dtype, tuple[int, ...]]]


def scheme(bits: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"num_bits": bits, "type": kind, "symmetric": True, **fields}


def compressed(packing: str, weights: dict[str, Any], activations: dict[str, Any] | None = None) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    groups = {"group_0": group}
    return {"quant_method": "compressed-tensors", "format": packing, "config_groups": groups, "ignore": ["lm_head"]}


STATIC = {"num_bits": 8, "type": "float", "dynamic": False}
DYNAMIC = STATIC | {"dynamic": True}
FORMATS: dict[str, tuple[str, dict[str, Any], Callable[[int, int], Parts]]] = {
    "fp8 blocks": (
        "fp8_block",
        {"quant_method": "fp8", "weight_block_size": [128, 64], "activation_scheme": "dynamic"},
        lambda r, c: {"weight": (F8, (r, c)), "weight_scale_inv": (F32, (-(-r // 128), -(-c // 64)))},
    ),
    "fp8 of transformers, one scale": (
        "fp8_tensor",
        {"quant_method": "fp8", "weight_block_size": None, "activation_scheme": "static"},
        lambda r, c: {"weight": (F8, (r, c)), "weight_scale_inv": (BF16, ()), "activation_scale": (BF16, ())},
    ),
    "fp8 of AutoFP8": (
        "fp8_tensor",
        {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]},
        lambda r, c: {"weight": (F8, (r, c)), "weight_scale": (F32, ()), "input_scale": (F32, ())},
    ),
    "fbgemm": (
        "fp8_channel",
        {"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]},
        lambda r, c: {"weight": (F8, (r, c)), "weight_scale": (F32, (r, 1))},
    ),
    "compressed fp8, dynamic, by row": (
        "fp8_channel",
        compressed("float-quantized", scheme(8, "float", strategy="channel"), DYNAMIC),
        lambda r, c: {"weight": (F8, (r, c)), "weight_scale": (BF16, (r, 1))},
    ),
    "compressed fp8, static, one scale": (
        "fp8_tensor",
        compressed("float-quantized", scheme(8, "float", strategy="tensor"), STATIC),
        lambda r, c: {"weight": (F8, (r, c)), "weight_scale": (BF16, (1,)), "input_scale": (BF16, (1,))},
    ),
    "compressed fp8 blocks": (
        "fp8_block",
        compressed("float-quantized", scheme(8, "float", strategy="block", block_structure=[128, 128]), DYNAMIC),
        lambda r, c: {"weight": (F8, (r, c)), "weight_scale": (BF16, (-(-r // 128), -(-c // 128)))},
    ),
    "compressed int8": (
        "int8",
        compressed("int-quantized", scheme(8, "int", strategy="channel"), DYNAMIC),
        lambda r, c: {"weight": (I8, (r, c)), "weight_scale": (BF16, (r, 1))},
    ),
    "compressed int4, groups of 32": (
        "int4",
        compressed("pack-quantized", scheme(4, "int", strategy="group", group_size=32)),
        lambda r, c: {
            "weight_packed": (I32, (r, c // 8)),
            "weight_scale": (BF16, (r, c // 32)),
            "weight_shape": (I64, (2,)),
        },
    ),
    "compressed int4, rows, with zero points": (
        "int4",
        compressed("pack-quantized", scheme(4, "int", strategy="channel") | {"symmetric": False}),
        lambda r, c: {
            "weight_packed": (I32, (r, c // 8)),
            "weight_scale": (BF16, (r, 1)),
            "weight_shape": (I64, (2,)),
            "weight_zero_point": (I32, (r // 8, 1)),
        },
    ),
    "compressed int8, groups in activation order": (
        "int8",
        compressed("pack-quantized", scheme(8, "int", strategy="group", group_size=64, actorder="group")),
        lambda r, c: {
            "weight_packed": (I32, (r, c // 4)),
            "weight_scale": (BF16, (r, c // 64)),
            "weight_shape": (I64, (2,)),
            "weight_g_idx": (I32, (c,)),
        },
    ),
    "compressed mxfp4": (
        "mxfp4",
        compressed("mxfp4-pack-quantized", scheme(4, "float", strategy="group", group_size=32)),
        lambda r, c: {"weight_packed": (U8, (r, c // 2)), "weight_scale": (U8, (r, c // 32))},
    ),
    "compressed nvfp4": (
        "nvfp4",
        compressed(
            "nvfp4-pack-quantized",
            scheme(4, "float", strategy="tensor_group", group_size=16),
            scheme(4, "float", strategy="tensor_group", group_size=16, dynamic="local"),
        ),
        lambda r, c: {
            "weight_packed": (U8, (r, c // 2)),
            "weight_scale": (F8, (r, c // 16)),
            "weight_global_scale": (F32, (1,)),
            "input_global_scale": (F32, (1,)),
        },
    ),
    "compressed nvfp4, weights only": (
        "nvfp4",
        compressed("nvfp4-pack-quantized", scheme(4, "float", strategy="tensor_group", group_size=16)),
        lambda r, c: {
            "weight_packed": (U8, (r, c // 2)),
            "weight_scale": (F8, (r, c // 16)),
            "weight_global_scale": (F32, (1,)),
        },
    ),
    "modelopt fp8": (
        "fp8_tensor",
        {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]},
        lambda r, c: {"weight": (F8, (r, c)), "weight_scale": (F32, ()), "input_scale": (F32, ())},
    ),
    "modelopt nvfp4": (
        "nvfp4",
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]},
        lambda r, c: {
            "weight": (U8, (r, c // 2)),
            "weight_scale": (F8, (r, c // 16)),
            "weight_scale_2": (F32, ()),
            "input_scale": (F32, ()),
        },
    ),
    "modelopt w4a8 awq": (
        "int4_awq",
        {"quant_method": "modelopt", "quant_algo": "W4A8_AWQ", "group_size": 64, "ignore": ["lm_head"]},
        lambda r, c: {
            "weight": (U8, (r // 2, c)),
            "weight_scale": (F32, (r, c // 64)),
            "weight_scale_2": (F32, ()),
            "input_scale": (F32, ()),
            "pre_quant_scale": (BF16, (c,)),
        },
    ),
    "awq": (
        "awq_int4",
        {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"},
        lambda r, c: {
            "qweight": (I32, (c, r // 8)),
            "qzeros": (I32, (c // 64, r // 8)),
            "scales": (F16, (c // 64, r)),
        },
    ),
    "gptq": (
        "gptq_int4",
        {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": True},
        lambda r, c: {
            "qweight": (I32, (c // 8, r)),
            "qzeros": (I32, (c // 32, r // 8)),
            "scales": (F16, (c // 32, r)),
            "g_idx": (I32, (c,)),
        },
    ),
    "gptq of 8 bits, whole rows": (
        "gptq_int8",
        {"quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": False, "sym": True},
        lambda r, c: {
            "qweight": (I32, (c // 4, r)),
            "qzeros": (I32, (1, r // 4)),
            "scales": (F16, (1, r)),
            "g_idx": (I32, (c,)),
        },
    ),
    "auto-round": (
        "gptq_int4",
        {"quant_method": "auto-round", "bits": 4, "group_size": 64, "packing_format": "auto_round:auto_gptq"},
        lambda r, c: {
            "qweight": (I32, (c // 8, r)),
            "qzeros": (I32, (c // 64, r // 8)),
            "scales": (F16, (c // 64, r)),
            "g_idx": (I32, (c,)),
        },
    ),
}
DENSE = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def plain_profile(config: dict[str, Any], folder: Path) -> ArchitectureProfile:
    path = folder / "plain.json"
    path.write_bytes(msgspec.json.encode(config))
    return read_profile(resolve(str(path)))


def write_packed(
    folder: Path, config: dict[str, Any], section: dict[str, Any], pack: Callable[[int, int], Parts]
) -> Path:
    """A checkpoint whose linear layers, but for head and router, are packed by the specification's shapes."""
    tensors = {}
    for spec in expected_tensors(plain_profile(config, folder)):
        for name in spec.names():
            module = name.removesuffix(".weight")
            if module.rpartition(".")[2] not in DENSE:
                tensors[name] = torch.zeros(spec.shape, dtype=BF16)
                continue
            for leaf, (dtype, shape) in pack(*spec.shape).items():
                tensors[f"{module}.{leaf}"] = torch.zeros(shape, dtype=dtype)
    return write_folder(folder / "model", config | {"quantization_config": section}, tensors)


def write_folder(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir()
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("config", [LLAMA, MOE], ids=["dense", "experts"])
@pytest.mark.parametrize("case", FORMATS)
def test_a_checkpoint_of_the_specification_is_what_is_expected(tmp_path, case: str, config: dict[str, Any]) -> None:
    name, section, pack = FORMATS[case]
    files = resolve(str(write_packed(tmp_path, config, section, pack)))
    profile = read_profile(files)
    comparison = compare_tensors(profile, files)
    assert (comparison.missing, comparison.unexpected, comparison.findings) == ((), (), ())
    formats = weight_formats(profile)
    assert set(formats) == {"bf16", name}
    assert sum(formats.values()) == files.weight_bytes
    assert stored_formats(profile, files.tensors) == formats
    assert count_parameters(profile) == count_parameters(plain_profile(config, tmp_path))
    assert profile.unused_config_keys == ()
    assert [found for found in profile.findings if found.code != "quantization-not-native"] == []


@pytest.mark.parametrize("case", FORMATS)
def test_the_config_alone_tells_the_same_bytes(tmp_path, case: str) -> None:
    """Scales of AWQ and GPTQ are float16 in these files and as wide as the model's own in the config's account."""
    _, section, pack = FORMATS[case]
    folder = write_packed(tmp_path, LLAMA, section, pack)
    alone, stored = read_profile(resolve(str(folder / "config.json"))), read_profile(resolve(str(folder)))
    assert weight_formats(alone) == weight_formats(stored)
    names = {name for spec in expected_tensors(alone) for name in spec.names()}
    assert names == {name for spec in expected_tensors(stored) for name in spec.names()}


@pytest.mark.parametrize("case", FORMATS)
def test_parts_can_be_cut_where_they_say(tmp_path, case: str) -> None:
    config = MOE | {"quantization_config": FORMATS[case][1]}
    for spec in expected_tensors(plain_profile(config, tmp_path)):
        if spec.shard_axis is not None:
            whole = spec.shape[spec.shard_axis]
            assert spec.shard_units == 1 or whole % spec.shard_units == 0, spec


@pytest.mark.parametrize(
    ("case", "units"),
    [
        ("fp8 of AutoFP8", WIDTH),
        ("compressed int4, groups of 32", WIDTH // 32),
        ("compressed nvfp4", WIDTH // 16),
        ("awq", WIDTH // 64),
        ("fp8 blocks", 1),  # 320 columns are two blocks and a half
    ],
)
def test_an_mlp_is_cut_between_groups_in_all_its_parts(tmp_path, case: str, units: int) -> None:
    config = LLAMA | {"quantization_config": FORMATS[case][1]}
    specs = [
        spec for spec in expected_tensors(plain_profile(config, tmp_path)) if spec.path.startswith("layers.0.ffn.")
    ]
    assert {spec.shard_units for spec in specs if spec.shard_axis is not None} == {units}
    heads = [spec for spec in expected_tensors(plain_profile(config, tmp_path)) if ".q_proj." in spec.path]
    assert all(spec.shard_units in (1, 4) for spec in heads)


@pytest.mark.parametrize("case", [case for case in FORMATS if case != "modelopt w4a8 awq"])
def test_formats_are_native(tmp_path, case: str) -> None:
    profile = plain_profile(MOE | {"quantization_config": FORMATS[case][1]}, tmp_path)
    assert (profile.native, profile.findings) == (True, ())


@pytest.mark.parametrize(
    "section",
    [
        {"quant_method": "awq", "bits": 8, "group_size": 64},
        {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": False},
        {"quant_method": "modelopt", "quant_algo": "W4A8_AWQ", "group_size": 64},
    ],
    ids=["AWQ of 8 bits", "AWQ without zero points", "4-bit weights scaled for 8-bit activations"],
)
def test_what_the_reference_runtime_does_not_turn_back_is_a_finding(tmp_path, section: dict[str, Any]) -> None:
    profile = plain_profile(MOE | {"quantization_config": section}, tmp_path)
    assert not profile.native
    assert [found.code for found in profile.findings] == ["quantization-not-native"]
    assert profile.findings[0].severity == "note"


def test_gpt_oss_keeps_its_experts_stacked(tmp_path) -> None:
    """[experts, out, in / 32, 16] bytes where the plain stack is [experts, in, out]; biases stay as they are."""
    section = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    tensors = {}
    for spec in expected_tensors(plain_profile(GPT_OSS, tmp_path)):
        if spec.name.endswith(("gate_up_proj", "down_proj")):
            rows, columns = (HIDDEN, WIDTH) if spec.name.endswith("down_proj") else (2 * WIDTH, HIDDEN)
            assert spec.shape == (EXPERTS, columns, rows)
            tensors[f"{spec.name}_blocks"] = torch.zeros(EXPERTS, rows, columns // 32, 16, dtype=U8)
            tensors[f"{spec.name}_scales"] = torch.zeros(EXPERTS, rows, columns // 32, dtype=U8)
        else:
            tensors[spec.name] = torch.zeros(spec.shape, dtype=BF16)
    files = resolve(str(write_folder(tmp_path / "model", GPT_OSS | {"quantization_config": section}, tensors)))
    profile = read_profile(files)
    comparison = compare_tensors(profile, files)
    assert (comparison.missing, comparison.unexpected) == ((), ())
    assert sum(weight_formats(profile).values()) == files.weight_bytes
    assert [str(group) for group in profile.quantization.groups] == ["routed_experts: mxfp4"]
    assert count_parameters(profile) == count_parameters(plain_profile(GPT_OSS, tmp_path))


def test_four_bit_experts_among_fp8_blocks(tmp_path) -> None:
    """DeepSeek-V4: experts in signed bytes with exponents for 32 values, all else in blocks of 128."""
    section = {"quant_method": "fp8", "weight_block_size": [128, 128], "expert_dtype": "fp4"}

    def pack(rows: int, columns: int) -> Parts:
        return {"weight": (F8, (rows, columns)), "weight_scale_inv": (E8M0, (-(-rows // 128), -(-columns // 128)))}

    def pack_expert(rows: int, columns: int) -> Parts:
        return {"weight": (I8, (rows, columns // 2)), "weight_scale_inv": (E8M0, (rows, columns // 32))}

    tensors = {}
    for spec in expected_tensors(plain_profile(MOE, tmp_path)):
        for name in spec.names():
            module = name.removesuffix(".weight")
            if module.rpartition(".")[2] not in DENSE:
                tensors[name] = torch.zeros(spec.shape, dtype=BF16)
                continue
            for leaf, (dtype, shape) in (pack_expert if ".experts." in name else pack)(*spec.shape).items():
                tensors[f"{module}.{leaf}"] = torch.zeros(shape, dtype=dtype)
    files = resolve(str(write_folder(tmp_path / "model", MOE | {"quantization_config": section}, tensors)))
    profile = read_profile(files)
    comparison = compare_tensors(profile, files)
    assert (comparison.missing, comparison.unexpected, comparison.findings) == ((), (), ())
    assert [str(group) for group in profile.quantization.groups] == ["attention: fp8_block", "routed_experts: mxfp4"]
    assert sum(weight_formats(profile).values()) == files.weight_bytes
