"""Numbers of an independent implementation of Kimi K3, segment by segment; skipped where they are not at hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from day0.profile.profile import VisionSpec
from day0.runtime.trace import Trace
from day0.runtime.vision.model import VisionModel
from day0.runtime.vision.preprocess import image_grid, plan_resize, preprocess_image
from day0.runtime.vision.preprocess_config import ImagePreprocessing, read_image_preprocessing
from day0.runtime.vision.prompt import expand_placeholders, image_spans

Tensors = dict[str, torch.Tensor]
SEGMENTS = {
    "vision.patch_embed": "patch_embed",
    "vision.blocks.0.output": "block0",
    "vision.blocks.1.output": "block1",
    "vision.blocks.2.output": "block2",
    "vision.merged": "tower_out",
    "vision.projected": "projected",
}


@pytest.fixture(scope="module")
def config(golden: Path, golden_spec: VisionSpec) -> ImagePreprocessing:
    document = json.loads((golden / "preprocessor_config.json").read_text())
    return read_image_preprocessing(document, golden_spec)


def relative_error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    assert ours.shape == theirs.shape
    return float((ours - theirs).norm() / theirs.norm())


def test_pixels(expected: Tensors, config: ImagePreprocessing) -> None:
    inputs = [preprocess_image(Image.fromarray(expected[f"image.raw{index}"].numpy()), config) for index in (0, 1)]
    assert [list(image.grid) for image in inputs] == expected["image.grid_thw"].tolist()
    pixels = torch.cat([image.pixel_values for image in inputs])
    assert (pixels - expected["image.pixel_values"]).abs().max() < 1e-6


def test_pixels_with_alpha(expected: Tensors, config: ImagePreprocessing) -> None:
    image = preprocess_image(Image.fromarray(expected["prep.rgba_raw"].numpy()), config)
    assert [list(image.grid)] == expected["prep.rgba_grid_thw"].tolist()
    assert (image.pixel_values - expected["prep.rgba_pixel_values"]).abs().max() < 1e-6


@pytest.mark.parametrize("table", ["prep.resize_table", "prep.resize_table_real"])
def test_sizes(expected: Tensors, config: ImagePreprocessing, table: str) -> None:
    if table.endswith("_real"):
        config = replace(config, patch_limit=65536, side_limit=512)
    for width, height, *wanted in expected[table].tolist():
        plan = plan_resize(width, height, config)
        tokens = image_grid(plan, config).tokens(config.merge)
        assert [plan.width, plan.height, plan.pad_width, plan.pad_height, tokens] == wanted, (width, height)


@pytest.mark.parametrize("kind", ["image", "video"])
def test_tower_and_projector(expected: Tensors, golden_model: VisionModel, kind: str) -> None:
    trace = Trace()
    golden_model.encode(expected[f"{kind}.pixel_values"], expected[f"{kind}.grid_thw"].tolist(), trace)
    for ours, theirs in SEGMENTS.items():
        assert relative_error(trace.tensors[ours], expected[f"{kind}.vision.{theirs}"]) < 1e-5, ours


def test_images_from_raw_pixels_to_their_rows_of_the_prompt(
    expected: Tensors, golden_model: VisionModel, golden_spec: VisionSpec, config: ImagePreprocessing
) -> None:
    inputs = [preprocess_image(Image.fromarray(expected[f"image.raw{index}"].numpy()), config) for index in (0, 1)]
    prompt = expand_placeholders(
        expected["image.input_ids"].tolist(), [image.num_tokens for image in inputs], golden_spec.placeholder_token_id
    )
    assert list(prompt.token_ids) == expected["image.input_ids_expanded"].tolist()
    features = golden_model.encode(
        torch.cat([image.pixel_values for image in inputs]), [image.grid for image in inputs]
    )
    for span in image_spans(prompt, features):
        rows = expected["image.inputs_embeds"][span.start : span.start + span.embeddings.shape[0]]
        assert relative_error(span.embeddings, rows) < 1e-5
