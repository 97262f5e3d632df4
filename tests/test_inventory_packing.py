"""Every packed format needs the operator that turns it back, at the sizes of the matrices that are packed."""

from __future__ import annotations

from typing import Any

import pytest

from day0.inventory import inventory_findings, layer_operators, operators_needed
from day0.operators import OPERATORS
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.source.model_files import ModelFiles
from day0.source.resolve import resolve


def compressed(packing: str, **weights: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights}
    return {
        "quant_method": "compressed-tensors",
        "format": packing,
        "config_groups": {"all": group},
        "ignore": ["lm_head"],
    }


SECTIONS: dict[str, tuple[dict[str, Any], dict[str, object]]] = {
    "fp8_block": (
        {"quant_method": "fp8", "weight_block_size": [128, 64]},
        {"rows": 768, "columns": 2048, "row_blocks": 6, "column_blocks": 32, "block_rows": 128, "block_columns": 64},
    ),
    "fp8_tensor": (
        {"quant_method": "modelopt", "quant_algo": "FP8"},
        {"rows": 768, "columns": 2048, "whole": 1},
    ),
    "fp8_channel": ({"quant_method": "fbgemm_fp8"}, {"rows": 768, "columns": 2048}),
    "int8": (
        compressed("int-quantized", num_bits=8, type="int", strategy="channel"),
        {"rows": 768, "columns": 2048},
    ),
    "int_packed": (
        compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=32),
        {"rows": 768, "columns": 2048, "row_words": 256, "row_groups": 64, "group_size": 32, "bits": 4},
    ),
    "mxfp4": (
        compressed("mxfp4-pack-quantized", num_bits=4, type="float", group_size=32),
        {"rows": 768, "columns": 2048, "row_bytes": 1024, "row_groups": 64, "group_size": 32},
    ),
    "mxfp8": (
        {"quant_method": "modelopt", "quant_algo": "MXFP8"},
        {"rows": 768, "columns": 2048, "row_groups": 64, "group_size": 32},
    ),
    "nvfp4": (
        {"quant_method": "modelopt", "quant_algo": "NVFP4"},
        {"rows": 768, "columns": 2048, "row_bytes": 1024, "row_groups": 128, "whole": 1, "group_size": 16},
    ),
    "int4_awq": (
        {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": 128},
        {"rows": 768, "columns": 2048, "row_pairs": 384, "row_groups": 16, "group_size": 128},
    ),
    "awq": (
        {"quant_method": "awq", "bits": 4, "group_size": 128},
        {"rows": 768, "columns": 2048, "column_words": 96, "row_groups": 16, "group_size": 128, "bits": 4},
    ),
    "gptq": (
        {"quant_method": "gptq", "bits": 8, "group_size": -1},
        {
            "rows": 768,
            "columns": 2048,
            "row_words": 512,
            "column_words": 192,
            "row_groups": 1,
            "group_size": 2048,
            "bits": 8,
        },
    ),
}


def profile(section: dict[str, Any] | None) -> ArchitectureProfile:
    config = dict(resolve("recipe:qwen3-30b-a3b").config) | {"quantization_config": section}
    return read_profile(ModelFiles("test/model", None, "config", None, config, "config.json", None, (), (), {}))


@pytest.mark.parametrize("kind", SECTIONS)
def test_the_up_projection_of_an_expert(kind: str) -> None:
    section, facts = SECTIONS[kind]
    needs = [need for need in operators_needed(profile(section)) if need.name.endswith("_dequantize")]
    assert {need.name for need in needs} == {f"{kind}_dequantize"}
    (up,) = (need for need in needs if "ffn.experts.up" in need.used_for)
    assert {**up.shapes, **up.attributes} == facts
    assert up.used_for == ("ffn.experts.gate", "ffn.experts.up")
    assert up.layers == tuple(range(48))
    assert up.phases == ("load", "prefill", "decode")
    assert {"mixer.q_proj", "mixer.k_proj", "mixer.o_proj"} <= {place for need in needs for place in need.used_for}


@pytest.mark.parametrize("kind", SECTIONS)
def test_nothing_of_a_packing_is_left_unexplained(kind: str) -> None:
    packed = profile(SECTIONS[kind][0])
    assert inventory_findings(packed) == inventory_findings(profile(None)) == ()
    assert f"{kind}_dequantize" in layer_operators(packed, packed.layers[0])


def test_every_operator_of_the_vocabulary_is_reached() -> None:
    assert {f"{kind}_dequantize" for kind in SECTIONS} == {
        name for name, operator in OPERATORS.items() if operator.part == "quantisation"
    }


def test_a_packed_head_stands_outside_of_the_layers() -> None:
    layers = {"lm_head": {"quant_algo": "FP8"}}
    section = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    (need,) = (need for need in operators_needed(profile(section)) if need.name == "fp8_tensor_dequantize")
    assert (need.layers, need.used_for, need.shapes["rows"]) == ((), ("lm_head",), 151_936)
