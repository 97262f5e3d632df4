from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from day0.errors import InputError
from day0.profile.profile import VisionSpec
from day0.runtime.vision.preprocess import chessboard, image_grid, opaque, plan_resize, preprocess_image
from day0.runtime.vision.preprocess_config import (
    Chessboard,
    ImagePreprocessing,
    PatchLimits,
    PixelLimits,
    read_image_preprocessing,
)

BOARD = Chessboard(square=8, white=255, gray=180, white_first=True)
SHIPPED = ImagePreprocessing(
    14, (2, 2), PatchLimits(65536, 512), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), BOARD, fill_before_resize=False
)
SIDES = st.integers(min_value=1, max_value=20_000)


@pytest.fixture
def config(media_document: dict[str, Any], spec: VisionSpec) -> ImagePreprocessing:
    return read_image_preprocessing(media_document, spec)


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize(
    ("size", "tokens"),
    [
        ((611, 437), 352),
        ((224, 224), 64),
        ((1920, 1080), 2691),
        ((4000, 3000), 15444),
        ((3584, 3585), 16512),  # whole patches fill the limit exactly: no resize, and the padding goes beyond it
        ((8000, 6000), 16428),
        ((10_000, 200), 1536),
        ((1, 1), 1),
    ],
)
def test_published_token_counts(size: tuple[int, int], tokens: int) -> None:
    assert image_grid(plan_resize(*size, SHIPPED), SHIPPED).tokens(SHIPPED.merge) == tokens


@given(SIDES, SIDES)
def test_plans_never_upscale_and_pad_less_than_a_cell(width: int, height: int) -> None:
    plan = plan_resize(width, height, SHIPPED)
    assert 1 <= plan.width <= min(width, 7168)
    assert 1 <= plan.height <= min(height, 7168)
    assert 0 <= plan.pad_width < 28
    assert 0 <= plan.pad_height < 28
    assert (plan.width + plan.pad_width) % 28 == (plan.height + plan.pad_height) % 28 == 0
    grid = image_grid(plan, SHIPPED)
    assert grid.tokens(SHIPPED.merge) * 4 == grid.patches
    assert max(grid.rows, grid.columns) <= 512


@given(SIDES, SIDES)
def test_plans_keep_the_aspect_ratio_to_a_pixel(width: int, height: int) -> None:
    plan = plan_resize(width, height, SHIPPED)
    if min(plan.width, plan.height) > 1:  # one pixel is the least, however thin the image
        # Each side loses less than a pixel: |(sW - a) H - (sH - b) W| = |b W - a H| < max(W, H).
        assert abs(plan.width * height - plan.height * width) < max(width, height)


@given(st.integers(1, 700), st.integers(1, 700))
def test_plans_of_whole_cells_keep_the_patch_limit(columns: int, rows: int) -> None:
    plan = plan_resize(columns * 28, rows * 28, SHIPPED)
    assert (plan.width // 14) * (plan.height // 14) <= 65536


@given(SIDES, SIDES)
def test_small_images_keep_their_size(width: int, height: int) -> None:
    small_width, small_height = width % 3584 + 1, height % 3584 + 1  # 256 patches a side fill the limit exactly
    plan = plan_resize(small_width, small_height, SHIPPED)
    assert (plan.width, plan.height) == (small_width, small_height)


def test_values_are_normalised_and_padding_is_black(config: ImagePreprocessing) -> None:
    raw = noise(20, 30, 3)
    result = preprocess_image(Image.fromarray(raw), config)
    assert result.grid == (1, 2, 4)
    assert (result.num_tokens, result.size) == (2, (30, 20))
    assert result.pixel_values.dtype == torch.float32
    canvas = np.zeros((28, 56, 3))
    canvas[:20, :30] = raw
    for index, patch in enumerate(result.pixel_values.numpy()):
        row, column = divmod(index, 4)
        square = canvas[row * 14 : row * 14 + 14, column * 14 : column * 14 + 14]
        assert np.abs(patch - (square.transpose(2, 0, 1) / 255 - 0.5) / 0.5).max() < 1e-6
    assert (result.pixel_values[3] == -1).all()


def test_each_channel_has_its_own_mean_and_deviation(config: ImagePreprocessing) -> None:
    config = replace(config, mean=(0.1, 0.2, 0.3), std=(0.5, 1.0, 2.0))
    pixels = preprocess_image(Image.new("RGB", (28, 28), (51, 102, 255)), config).pixel_values
    for channel, value in enumerate(((0.2 - 0.1) / 0.5, 0.4 - 0.2, (1.0 - 0.3) / 2)):
        assert pixels[:, channel].numpy() == pytest.approx(value, abs=1e-6)


def test_large_images_are_scaled_to_the_plan(config: ImagePreprocessing) -> None:
    raw = Image.fromarray(noise(130, 200, 3))
    plan = plan_resize(200, 130, config)
    assert plan.width < 200
    by_hand = raw.resize((plan.width, plan.height), Image.Resampling.BICUBIC)
    roomy = replace(config, limits=PatchLimits(10_000, 12))
    assert torch.equal(preprocess_image(raw, config).pixel_values, preprocess_image(by_hand, roomy).pixel_values)


def test_blending_is_exact() -> None:
    """alpha * colour + (1 - alpha) * board in float32, truncated: over white, over grey, opaque and clear."""
    pixels = np.zeros((8, 16, 4), dtype=np.uint8)
    pixels[:, :] = (100, 200, 0, 128)
    pixels[0, 0] = (10, 20, 30, 255)
    pixels[0, 8] = (10, 20, 30, 0)
    result = np.asarray(opaque(Image.fromarray(pixels), BOARD))
    # 128/255 of the colour and 127/255 of the board; black over white is 126.99999 in float32, so 126.
    assert result[1, 1].tolist() == [177, 227, 126]
    assert result[1, 9].tolist() == [139, 190, 89]
    assert result[0, 0].tolist() == [10, 20, 30]
    assert result[0, 8].tolist() == [180, 180, 180]


def test_chessboard_starts_top_left() -> None:
    board = chessboard(5, 3, Chessboard(square=2, white=9, gray=1, white_first=True))
    assert board.tolist() == [[9, 9, 1, 1, 9], [9, 9, 1, 1, 9], [1, 1, 9, 9, 1]]
    assert chessboard(2, 1, Chessboard(1, 9, 1, white_first=False)).tolist() == [[1, 9]]


def test_transparency_is_filled_after_the_resize(config: ImagePreprocessing) -> None:
    """The board's squares keep their size however much the image shrinks."""
    clear = Image.new("RGBA", (400, 400), (0, 0, 0, 0))
    after = preprocess_image(clear, config)
    plan = plan_resize(400, 400, config)
    board = Image.fromarray(chessboard(plan.width, plan.height, BOARD)).convert("RGB")
    roomy = replace(config, limits=PatchLimits(10_000, 12))
    assert torch.equal(after.pixel_values, preprocess_image(board, roomy).pixel_values)
    before = preprocess_image(clear, replace(config, fill_before_resize=True))
    assert not torch.equal(before.pixel_values, after.pixel_values)


def test_colours_of_clear_pixels_do_not_bleed_through_the_resize(config: ImagePreprocessing) -> None:
    pixels = np.zeros((400, 400, 4), dtype=np.uint8)
    pixels[:, :200] = (255, 0, 0, 0)  # invisible red
    pixels[:, 200:] = (0, 0, 255, 255)
    values = preprocess_image(Image.fromarray(pixels), config).pixel_values
    board = preprocess_image(Image.new("RGBA", (400, 400), (0, 0, 0, 0)), config).pixel_values
    assert torch.equal(values[0], board[0])
    assert (values[:, 0] <= board[:, 0] + 2 / 255 + 1e-6).all()


def test_palette_and_colour_key_transparency_show_the_board(config: ImagePreprocessing) -> None:
    palette = Image.new("P", (16, 8), 1)
    palette.putpalette([0, 0, 0, 50, 60, 70])
    palette.putpixel((0, 0), 0)
    palette.info["transparency"] = 0
    filled = np.asarray(opaque(palette, BOARD))
    assert filled[0, 0].tolist() == [255, 255, 255]
    assert filled[0, 1].tolist() == [50, 60, 70]
    keyed = Image.new("RGB", (16, 8), (1, 2, 3))
    keyed.info["transparency"] = (1, 2, 3)
    assert np.asarray(opaque(keyed, BOARD))[0, 8].tolist() == [180, 180, 180]


def test_palettes_are_not_interpolated(config: ImagePreprocessing) -> None:
    palette = Image.fromarray(noise(300, 300) % 2, mode="L").convert("P")
    palette.putpalette([0, 0, 0, 255, 255, 255])
    values = preprocess_image(palette, config).pixel_values
    assert set(values.unique().tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize("mode", ["1", "L", "CMYK", "P", "LA", "RGBA"])
def test_every_kind_of_pixels_becomes_the_same_grey(config: ImagePreprocessing, mode: str) -> None:
    white = Image.new("RGB", (28, 28), (255, 255, 255)).convert(mode)
    assert (preprocess_image(white, config).pixel_values == 1).all()


def test_without_a_background_alpha_is_dropped(config: ImagePreprocessing) -> None:
    clear = Image.new("RGBA", (28, 28), (255, 0, 0, 0))
    values = preprocess_image(clear, replace(config, background=None)).pixel_values
    assert (values[:, 0] == 1).all()
    assert (values[:, 1:] == -1).all()


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (63, 100)])
def test_odd_sizes_become_whole_cells(config: ImagePreprocessing, size: tuple[int, int]) -> None:
    result = preprocess_image(Image.new("RGB", size, (9, 9, 9)), config)
    assert result.pixel_values.shape == (result.grid.patches, 3, 14, 14)
    assert result.grid.rows % 2 == result.grid.columns % 2 == 0
    assert torch.isfinite(result.pixel_values).all()


PIXELS = ImagePreprocessing(
    patch_size=14,
    merge=(2, 2),
    limits=PixelLimits(56 * 56, 20_000),
    mean=(0.48, 0.45, 0.4),
    std=(0.26, 0.25, 0.27),
    background="white",
    fill_before_resize=True,
    frames=2,
)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P"])
@pytest.mark.parametrize("size", [(61, 43), (56, 56), (400, 300), (1, 1), (20, 300), (42, 70)])
def test_scaled_images_are_those_of_transformers(mode: str, size: tuple[int, int]) -> None:
    """Sizes, levels and patches; transformers puts the patches of a cell together, ours go by rows."""
    image = Image.fromarray(noise(size[1], size[0], 4), "RGBA").convert(mode)
    theirs = Qwen2VLImageProcessorPil(
        size={"shortest_edge": 56 * 56, "longest_edge": 20_000}, image_mean=PIXELS.mean, image_std=PIXELS.std
    )([image], return_tensors="pt")
    ours = preprocess_image(image, PIXELS)
    assert theirs["image_grid_thw"].tolist() == [list(ours.grid)]
    _, rows, columns = ours.grid
    cells = ours.pixel_values.reshape(rows // 2, 2, columns // 2, 2, -1).transpose(1, 2).flatten(0, 3)
    assert torch.allclose(cells, theirs["pixel_values"], atol=2e-6)
    assert ours.num_tokens == rows * columns // 4


@given(SIDES, SIDES)
def test_scaled_plans_keep_their_limits(width: int, height: int) -> None:
    if max(width, height) > 200 * min(width, height):
        with pytest.raises(InputError, match="one side is over 200 times the other"):
            plan_resize(width, height, PIXELS)
        return
    plan = plan_resize(width, height, PIXELS)
    assert plan.width % 28 == plan.height % 28 == plan.pad_width == plan.pad_height == 0
    assert plan.width >= 28 and plan.height >= 28
    assert plan.width * plan.height <= 20_000 or min(plan.width, plan.height) == 28
