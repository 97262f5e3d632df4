from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest
from safetensors import safe_open

from day0.profile.profile import VisionSpec
from day0.profile.vision_tensors import vision_tensors

SHARED = Path(os.environ.get("DAY0_SHARED", Path(__file__).resolve().parents[3] / "shared"))
K3 = VisionSpec(14, 1024, 1536, 27, 12, 4096, (64, 64), 4, (2, 2), 7168, 2.0**-23, 1e-5, 163605)
TINY = VisionSpec(14, 64, 96, 3, 4, 160, (8, 8), 4, (2, 2), 128, 2.0**-23, 1e-5, 505)


def test_kimi_k3_has_447_million_vision_parameters() -> None:
    tensors = vision_tensors(K3, "BF16")
    assert sum(tensor.total_parameters for tensor in tensors) == 447_358_976
    assert sum(tensor.nbytes for tensor in tensors) == 2 * 447_358_976
    assert {tensor.group for tensor in tensors} == {"vision"}
    assert {tensor.layer for tensor in tensors} == {None}


def test_names_and_paths_are_unique_and_in_order_of_execution() -> None:
    tensors = vision_tensors(K3, "BF16")
    assert len({tensor.name for tensor in tensors}) == len({tensor.path for tensor in tensors}) == len(tensors) == 168
    paths = [tensor.path for tensor in tensors]
    assert paths[0] == "vision.tower.patch_embed.weight"
    blocks = [int(match[1]) for path in paths if (match := re.search(r"blocks\.(\d+)\.", path))]
    assert blocks == sorted(blocks)
    assert set(blocks) == set(range(27))
    assert paths[-1] == "vision.projector.norm.weight"


def test_a_block_by_hand() -> None:
    shapes = {tensor.path: tensor.shape for tensor in vision_tensors(TINY, "F32")}
    assert shapes["vision.tower.blocks.2.attention.qkv.weight"] == (288, 64)
    assert shapes["vision.tower.blocks.2.attention.out.weight"] == (64, 96)
    assert shapes["vision.tower.blocks.0.mlp.up.weight"] == (160, 64)
    assert shapes["vision.projector.down.weight"] == (128, 256)


def test_the_golden_checkpoint_holds_exactly_these_tensors() -> None:
    folder = SHARED / "golden" / "kimi-k3-tiny"
    if not folder.is_dir():
        pytest.skip(f"no golden data at {folder} (set DAY0_SHARED)")
    stored = {}
    for shard in sorted(folder.glob("model-*.safetensors")):
        with safe_open(shard, "pt") as file:
            names = list(file.keys())
            for name in names:
                if not name.startswith("language_model."):
                    header = file.get_slice(name)
                    stored[name] = (tuple(header.get_shape()), header.get_dtype())
    assert stored == {tensor.name: (tensor.shape, tensor.dtype) for tensor in vision_tensors(TINY, "BF16")}


def test_the_released_checkpoint_has_these_name_patterns() -> None:
    listing = SHARED / "model_headers" / "moonshotai--Kimi-K3" / "naming.json"
    if not listing.is_file():
        pytest.skip(f"no listing at {listing} (set DAY0_SHARED)")
    patterns = json.loads(listing.read_text())["patterns"]
    published = {name: count for name, count in patterns.items() if not name.startswith("language_model.")}
    ours = Counter(re.sub(r"(?<=\.)\d+(?=\.)", "{i}", tensor.name) for tensor in vision_tensors(K3, "BF16"))
    assert ours == published
