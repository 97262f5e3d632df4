from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from day0.errors import CannotSay, InputError
from day0.profile.profile import VisionSpec
from day0.runtime.vision.preprocess_config import (
    Chessboard,
    PatchLimits,
    PixelLimits,
    image_preprocessing,
    read_image_preprocessing,
)
from day0.source.model_files import ModelFiles


def test_settings_are_read(media_document: dict[str, Any], spec: VisionSpec) -> None:
    config = read_image_preprocessing(media_document, spec)
    assert (config.patch_size, config.merge, config.limits) == (14, (2, 2), PatchLimits(48, 12))
    assert config.mean == config.std == (0.5, 0.5, 0.5)
    assert config.background == Chessboard(square=8, white=255, gray=180, white_first=True)
    assert not config.fill_before_resize
    assert config.cell == (28, 28)
    assert config.findings == ()


def test_merge_may_name_both_axes(media_document: dict[str, Any], spec: VisionSpec) -> None:
    media_document["media_proc_cfg"]["merge_kernel_size"] = [1, 2]
    assert read_image_preprocessing(media_document, replace(spec, merge=(1, 2))).cell == (14, 28)


def test_absent_background_drops_alpha_and_absent_stage_means_before(
    media_document: dict[str, Any], spec: VisionSpec
) -> None:
    del media_document["media_proc_cfg"]["transparent_bg_config"]
    del media_document["media_proc_cfg"]["transparent_bg_fill_stage"]
    config = read_image_preprocessing(media_document, spec)
    assert config.background is None
    assert config.fill_before_resize


def test_settings_nobody_reads_are_reported(media_document: dict[str, Any], spec: VisionSpec) -> None:
    media_document["media_proc_cfg"]["sharpen"] = 3
    media_document["media_proc_cfg"]["transparent_bg_config"]["blur"] = 1
    findings = read_image_preprocessing(media_document, spec).findings
    assert [finding.where for finding in findings] == [
        "preprocessor_config.json: media_proc_cfg.sharpen",
        "preprocessor_config.json: media_proc_cfg.transparent_bg_config.blur",
    ]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("patch_size", 16, "is 16, the vision tower was built for 14"),
        ("merge_kernel_size", 4, r"is \(4, 4\), the vision tower was built for \(2, 2\)"),
        ("merge_kernel_size", [2], "two positive integers"),
        ("in_patch_limit", 0, "at least 1"),
        ("in_patch_limit", "48", "must be an integer"),
        ("image_mean", [0.5, 0.5], "three numbers"),
        ("image_mean", None, "three numbers"),
        ("image_std", [0.5, 0.0, 0.5], "must not contain 0"),
        ("image_std", [0.5, float("nan"), 0.5], "three numbers"),
        ("transparent_bg_fill_stage", "later", "'later' is not known"),
    ],
)
def test_wrong_settings_are_named(
    media_document: dict[str, Any], spec: VisionSpec, key: str, value: object, message: str
) -> None:
    media_document["media_proc_cfg"][key] = value
    with pytest.raises(InputError, match=message) as caught:
        read_image_preprocessing(media_document, spec)
    assert caught.value.where == f"preprocessor_config.json: media_proc_cfg.{key}"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [("pattern", "stripes", "'stripes' is not known"), ("chessboard_gray_value", 256, "at most 255")],
)
def test_wrong_backgrounds_are_named(
    media_document: dict[str, Any], spec: VisionSpec, key: str, value: object, message: str
) -> None:
    media_document["media_proc_cfg"]["transparent_bg_config"][key] = value
    with pytest.raises(InputError, match=message):
        read_image_preprocessing(media_document, spec)


def test_fixed_token_counts_are_not_guessed(media_document: dict[str, Any], spec: VisionSpec) -> None:
    media_document["media_proc_cfg"]["fixed_output_tokens"] = 64
    with pytest.raises(CannotSay, match="fixed token count"):
        read_image_preprocessing(media_document, spec)


def test_a_model_without_the_file_is_told_so(media_document: dict[str, Any], spec: VisionSpec) -> None:
    files = ModelFiles("some/model", None, "folder", Path("."), {}, "config.json", None, (), (), {})
    with pytest.raises(InputError, match=r"no preprocessor_config\.json"):
        image_preprocessing(files, spec)
    full = replace(files, extras={"preprocessor_config.json": media_document})
    assert image_preprocessing(full, spec) == read_image_preprocessing(media_document, spec)
    with pytest.raises(InputError, match="is missing"):
        image_preprocessing(replace(files, extras={"preprocessor_config.json": {}}), spec)


SCALED = {
    "image_processor_type": "Qwen2VLImageProcessorFast",
    "processor_class": "Qwen3VLProcessor",
    "size": {"shortest_edge": 3136, "longest_edge": 65536},
    "patch_size": 14,
    "temporal_patch_size": 1,
    "merge_size": 2,
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.5, 0.5, 0.5],
}


def test_scaled_images(spec: VisionSpec) -> None:
    config = read_image_preprocessing(SCALED, spec)
    assert (config.patch_size, config.merge, config.frames) == (14, (2, 2), 1)
    assert config.limits == PixelLimits(3136, 65536)
    assert config.mean == (0.5, 0.4, 0.3)
    assert config.fill_before_resize and config.findings == ()
    older = {key: value for key, value in SCALED.items() if key != "size"} | {"min_pixels": 5, "max_pixels": 700}
    assert read_image_preprocessing(older, spec).limits == PixelLimits(5, 700)
    bare = {"image_processor_type": "Qwen2VLImageProcessor", "temporal_patch_size": 1}
    assert read_image_preprocessing(bare, spec).limits == PixelLimits(3136, 1003520)
    sides = bare | {"image_processor_type": "MiniMaxM3VLImageProcessor", "size": [672, 672]}
    assert read_image_preprocessing(sides, spec).limits == PixelLimits(3136, 451584)


@pytest.mark.parametrize(
    ("edit", "error", "message"),
    [
        ({"temporal_patch_size": 2}, InputError, "is 2, the vision tower was built for 1"),
        ({"merge_size": 3}, InputError, r"is \(3, 3\), the vision tower was built for \(2, 2\)"),
        ({"image_processor_type": "LlavaImageProcessor"}, CannotSay, "class 'LlavaImageProcessor' are not understood"),
        ({"do_rescale": False}, CannotSay, "always scaled, normalised"),
        ({"resample": 2}, CannotSay, "bicubic"),
        ({"rescale_factor": 0.01}, CannotSay, "bicubic scaling of levels"),
    ],
)
def test_scaled_images_of_other_kinds(
    spec: VisionSpec, edit: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_image_preprocessing(SCALED | edit, spec)
