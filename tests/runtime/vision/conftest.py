"""A small random tower without outside files, and the golden folder where it lies beside the repository."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from day0.profile.config_reader import ConfigReader
from day0.profile.profile import VisionSpec
from day0.profile.read_vision import read_kimi_vision
from day0.profile.vision_tensors import vision_tensors
from day0.runtime.ops.registry import Operators, choose_operators
from day0.runtime.vision.model import VisionModel

MEDIA_CONFIG = {
    "in_patch_limit": 48,
    "patch_size": 14,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "merge_kernel_size": 2,
    "fixed_output_tokens": None,
    "patch_limit_on_one_side": 12,
    "transparent_bg_config": {
        "pattern": "chessboard",
        "chessboard_square_size": 8,
        "chessboard_square_on_top_left": True,
        "chessboard_white_value": 255,
        "chessboard_gray_value": 180,
    },
    "transparent_bg_fill_stage": "after_resize",
}


@pytest.fixture
def spec() -> VisionSpec:
    """Every size differs from every other that it could be mistaken for; the position grid is not square."""
    return VisionSpec(
        patch_size=14,
        hidden_size=20,
        qkv_size=24,
        num_layers=2,
        num_heads=3,
        mlp_width=28,
        position_grid=(6, 4),
        position_frames=4,
        merge=(2, 2),
        text_hidden_size=12,
        norm_eps=2.0**-23,
        projector_norm_eps=1e-5,
        placeholder_token_id=7,
    )


@pytest.fixture(scope="session")
def ops() -> Operators:
    return choose_operators(torch.device("cpu"), torch.float32)


@pytest.fixture
def model(spec: VisionSpec, ops: Operators) -> VisionModel:
    """Random weights; those of the norms are near 1 but not 1, so that leaving one out shows."""
    vision = VisionModel(spec, ops)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in vision.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                parameter.copy_(1 + 0.3 * noise)
            else:
                parameter.copy_(noise * parameter[0].numel() ** -0.5 if parameter.dim() < 4 else noise * 0.05)
    return vision


@pytest.fixture
def media_document() -> dict[str, Any]:
    """A preprocessor_config.json with limits so small that test images are scaled down."""
    return json.loads(json.dumps({"media_proc_cfg": MEDIA_CONFIG}))


def pixels_for(grids: list[tuple[int, int, int]], seed: int = 0) -> torch.Tensor:
    """Random pixel values for these grids, [patches, 3, 14, 14]."""
    count = sum(frames * rows * columns for frames, rows, columns in grids)
    return torch.randn(count, 3, 14, 14, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(name="pixels_for")
def _pixels_for() -> Any:
    return pixels_for


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of numbers from an independent implementation; its tests are skipped where it is absent."""
    beside = Path(__file__).resolve().parents[4] / "shared"
    folder = Path(os.environ.get("DAY0_SHARED", beside)) / "golden" / "kimi-k3-tiny"
    if not (folder / "expected.safetensors").is_file():
        pytest.skip(f"no golden data at {folder} (set DAY0_SHARED)")
    return folder


@pytest.fixture(scope="session")
def expected(golden: Path) -> dict[str, torch.Tensor]:
    return load_file(golden / "expected.safetensors")


@pytest.fixture(scope="session")
def golden_spec(golden: Path) -> VisionSpec:
    config = json.loads((golden / "config.json").read_text())
    spec = read_kimi_vision(ConfigReader(config, "config.json"))
    assert spec is not None
    return spec


@pytest.fixture(scope="session")
def golden_model(golden: Path, golden_spec: VisionSpec, ops: Operators) -> VisionModel:
    """The golden checkpoint's vision weights in float32, placed by our own table of names."""
    shard_of = json.loads((golden / "model.safetensors.index.json").read_text())["weight_map"]
    weights = {}
    for tensor in vision_tensors(golden_spec, "BF16"):
        with safe_open(golden / shard_of[tensor.name], "pt") as shard:
            weights[tensor.path.removeprefix("vision.")] = shard.get_tensor(tensor.name).float()
    model = VisionModel(golden_spec, ops)
    model.load_state_dict(weights)
    return model
