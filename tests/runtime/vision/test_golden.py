"""Numbers of an independent implementation of Kimi K3, segment by segment; skipped where they are not at hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from day0.plan.settings import EngineSettings
from day0.profile.profile import VisionSpec
from day0.profile.read import read_profile
from day0.runtime.batch import ImageSpan, Request, SamplingParams
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.load import load_engine
from day0.runtime.trace import Trace
from day0.runtime.vision.model import VisionModel
from day0.runtime.vision.preprocess import image_grid, plan_resize, preprocess_image
from day0.runtime.vision.preprocess_config import ImagePreprocessing, PatchLimits, read_image_preprocessing
from day0.runtime.vision.prompt import ExpandedPrompt, expand_placeholders, image_spans
from day0.source.resolve import resolve

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
        config = replace(config, limits=PatchLimits(65536, 512))
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


@pytest.fixture(scope="module")
def engine(golden: Path) -> Engine:
    """The whole golden model, decoder and vision, loaded as a user would."""
    files = resolve(str(golden))
    settings = EngineSettings(device="cpu", dtype="float32", kv_cache_bytes=1 << 20, max_num_seqs=4, debug=True)
    return load_engine(files, read_profile(files), settings)


@pytest.fixture(scope="module")
def prompt(expected: Tensors, config: ImagePreprocessing, golden_spec: VisionSpec) -> ExpandedPrompt:
    images = [preprocess_image(Image.fromarray(expected[f"image.raw{index}"].numpy()), config) for index in (0, 1)]
    counts = [image.num_tokens for image in images]
    return expand_placeholders(expected["image.input_ids"].tolist(), counts, golden_spec.placeholder_token_id)


@pytest.fixture(scope="module")
def spans(
    expected: Tensors, config: ImagePreprocessing, engine: Engine, prompt: ExpandedPrompt
) -> tuple[ImageSpan, ...]:
    """The two raw images, preprocessed and encoded, at their places in the prompt."""
    images = [preprocess_image(Image.fromarray(expected[f"image.raw{index}"].numpy()), config) for index in (0, 1)]
    assert isinstance(engine.vision, VisionModel)
    return image_spans(prompt, engine.vision.encode_images(images))


def test_one_placeholder_per_image_is_expanded(expected: Tensors, prompt: ExpandedPrompt) -> None:
    assert list(prompt.token_ids) == expected["image.input_ids_expanded"].tolist()


def test_merged_embeddings(
    expected: Tensors, engine: Engine, prompt: ExpandedPrompt, spans: tuple[ImageSpan, ...]
) -> None:
    trace = Trace(only=("embed",))
    engine.forward(prompt.token_ids, images=spans, trace=trace)
    assert relative_error(trace.tensors["embed"], expected["image.inputs_embeds"]) < 1e-5


@pytest.mark.parametrize("chunk", [None, 7, 1])
def test_logits(
    expected: Tensors, engine: Engine, prompt: ExpandedPrompt, spans: tuple[ImageSpan, ...], chunk: int | None
) -> None:
    """The prompt whole, cut inside of images, and token by token."""
    logits = engine.forward(prompt.token_ids, images=spans, chunk=chunk)
    assert relative_error(logits, expected["image.logits"]) < 1e-4


def test_exchanged_images_show_in_the_logits(
    expected: Tensors, engine: Engine, prompt: ExpandedPrompt, spans: tuple[ImageSpan, ...]
) -> None:
    first, second = spans
    count = second.embeddings.shape[0]
    swapped = (ImageSpan(first.start, second.embeddings), ImageSpan(second.start, first.embeddings[:count]))
    logits = engine.forward(prompt.token_ids, images=swapped)
    assert relative_error(logits, expected["image.logits"]) > 0.1


def test_greedy_continuation(
    expected: Tensors, engine: Engine, prompt: ExpandedPrompt, spans: tuple[ImageSpan, ...]
) -> None:
    """Alone and beside a text request: the same eight tokens."""
    wanted = expected["image.next_ids"].tolist()
    params = SamplingParams(max_tokens=len(wanted), ignore_eos=True)
    with_images = Request("images", prompt.token_ids, params, spans)
    text = Request("text", tuple(expected["input_ids"].tolist()), params)
    (alone,) = engine.generate([with_images])
    assert list(alone.token_ids) == wanted
    beside, other = engine.generate([with_images, text])
    assert list(beside.token_ids) == wanted
    assert list(other.token_ids) == expected["generated_ids"][: len(wanted)].tolist()
