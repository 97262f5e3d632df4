"""The second decoder against codes drawn and packed bit by bit, and against the runtime on tiny packed models."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

from packing_draws import draw_packed

from day0.checklist.checklist import Measured
from day0.checklist.probe_packed import packed
from day0.checklist.probe_runtime import RuntimeTarget
from day0.checklist.probe_second_decoder import decode, decodes
from day0.checklist.target import CheckContext
from day0.plan.settings import EngineSettings
from day0.profile import packing_formats as formats
from day0.profile.quantization import WeightFormat
from day0.profile.read import read_profile
from day0.source.resolve import resolve

FORMATS = [
    formats.mxfp4(),
    formats.mxfp4_blocks(),
    formats.mxfp8(),
    formats.nvfp4(activations=False),
    formats.fp8_block(128, 128, "weight_scale_inv", "F32"),
    formats.fp8_tensor("weight_scale F32", ""),
    formats.fp8_channel(),
    formats.int_packed(4, 32, symmetric=True, reordered=False),
    formats.int_packed(8, 0, symmetric=True, reordered=False),
]


def as_stored(part: torch.Tensor) -> np.ndarray:
    if part.element_size() == 1 and part.dim():
        return part.view(torch.uint8).numpy()
    return (part.float() if part.dtype == torch.bfloat16 else part).numpy()


@pytest.mark.parametrize("packing", FORMATS, ids=str)
def test_the_numbers_of_drawn_codes(packing: WeightFormat) -> None:
    assert decodes(packing)
    drawn, wanted = draw_packed(packing, 192, 256, np.random.default_rng(3))
    parts = {role: as_stored(part) for role, part in drawn.items()}
    found = decode(packing, parts, 192, 256)
    assert found.dtype == np.float32 and np.array_equal(found, wanted.astype(np.float32))


def test_what_it_does_not_know_it_says() -> None:
    assert not decodes(formats.int_packed(4, 32, symmetric=False, reordered=False))


@pytest.mark.parametrize("recipe", ["kimi-k3", "gpt-oss-120b", "kimi-k2.5", "deepseek-r1"])
def test_tiny_packed_models(recipe: str, tiny) -> None:
    files = resolve(str(tiny(recipe)))
    profile = read_profile(files)
    target = RuntimeTarget(files, profile, EngineSettings(device="cpu", dtype="float32", max_num_seqs=2), None)
    found = packed(CheckContext(files, profile, target, "runtime", 0, None, None))
    assert isinstance(found, Measured)
    assert found.inspected >= 8 and found.values["wrong"] == 0
