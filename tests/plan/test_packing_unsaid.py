from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from day0.plan.layout import LayoutRequest
from day0.plan.packing_unsaid import unsaid_packing
from day0.profile.read import read_profile
from day0.source.model_files import ModelFiles, TensorHeader

from .conftest import SMALL_LLAMA

SECTION = {"quant_method": "fp8", "weight_block_size": [8, 8], "activation_scheme": "dynamic"}


def files_of(name: str, **config: Any) -> ModelFiles:
    return ModelFiles(name, None, "config", Path("."), SMALL_LLAMA | config, "config.json", None, (), (), {})


@pytest.mark.parametrize(
    ("name", "bits"), [("org/Small-NVFP4", 4), ("org/Small-FP8-dynamic", 8), ("org/small_awq", 4), ("org/s-W4A16", 4)]
)
def test_a_name_that_says_packed_is_not_counted_as_plain_in_silence(name: str, bits: int) -> None:
    files = files_of(name)
    unsaid = unsaid_packing(files, read_profile(files))
    assert unsaid and f"all at {bits} bits" in unsaid and "hf_quant_config.json" in unsaid


@pytest.mark.parametrize("name", ["org/Small", "org/Small-bf16", "org/deepfp8ness", "org/fp80"])
def test_other_names_say_nothing(name: str) -> None:
    files = files_of(name)
    assert unsaid_packing(files, read_profile(files)) is None


def test_headers_or_a_section_settle_it() -> None:
    packed = files_of("org/Small-FP8", quantization_config=SECTION)
    assert unsaid_packing(packed, read_profile(packed)) is None
    plain = files_of("org/Small-FP8")
    header = {"model.norm.weight": TensorHeader("BF16", (96,), "model.safetensors", 0, 192)}
    assert unsaid_packing(replace(plain, tensors=header), read_profile(plain)) is None


def test_such_a_plan_cannot_say_and_shows_the_upper_bound(planner: Any) -> None:
    files = files_of("org/Small-NVFP4")
    profile = read_profile(files)
    made = planner(profile, "h100:1", "vllm", context=1024)
    told = type(made)(profile, made.cluster, made.accounting, made.workload, None, unsaid_packing(files, profile))
    layout = made.accounting.complete(LayoutRequest(), profile, 1)
    assert made.plan(layout).fits is True
    plan = told.plan(layout)
    assert plan.fits is None and plan.unsized and plan.weights_gib_per_gpu == made.plan(layout).weights_gib_per_gpu
