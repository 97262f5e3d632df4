"""What preprocessor_config.json says about images, checked against the tower it feeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

from day0.errors import CannotSay, Finding, InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import VisionSpec, VisionTower
from day0.source.model_files import ModelFiles

FILE_NAME = "preprocessor_config.json"
SECTION = "media_proc_cfg"
CLASS = "image_processor_type"
BICUBIC = 3
"""Pillow's number of the filter."""

_CLIP_MEAN, _CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""Of the pictures that CLIP was trained on (arXiv 2103.00020)."""


@dataclass(frozen=True, slots=True)
class Chessboard:
    """What shows through transparent pixels: squares of `square` pixels in two greys, from the top left corner."""

    square: int
    white: int
    gray: int
    white_first: bool


Background = Chessboard | Literal["white"] | None
"""What is behind transparent pixels."""


@dataclass(frozen=True, slots=True)
class PatchLimits:
    """Images are scaled down where they have more `patches` in all or along one `side`, and padded to whole cells."""

    patches: int
    side: int


@dataclass(frozen=True, slots=True)
class PixelLimits:
    """Images are scaled up or down to whole cells of between `fewest` and `most` pixels; nothing is padded."""

    fewest: int
    most: int


@dataclass(frozen=True, slots=True)
class ImagePreprocessing:
    """How an image becomes patches.

    `mean` and `std` are per channel, for values in 0..1. `background` is filled in before or after the resize; None
    drops the alpha channel. A patch has the image `frames` times over. `findings` name settings that nothing here
    reads.
    """

    patch_size: int
    merge: tuple[int, int]
    limits: PatchLimits | PixelLimits
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    background: Background
    fill_before_resize: bool
    frames: int = 1
    findings: tuple[Finding, ...] = ()

    @property
    def cell(self) -> tuple[int, int]:
        """Pixels (rows, columns) behind one token of the prompt; padding fills images up to multiples of it."""
        return self.patch_size * self.merge[0], self.patch_size * self.merge[1]


_SCALED: Mapping[str, PixelLimits] = {
    "Qwen2VLImageProcessor": PixelLimits(56 * 56, 28 * 28 * 1280),
    "MiniMaxM3VLImageProcessor": PixelLimits(4 * 28 * 28, 672 * 672),
}
"""Classes that scale images to whole cells, and the limits they have by default."""


def image_preprocessing(files: ModelFiles, spec: VisionSpec | VisionTower) -> ImagePreprocessing:
    """The settings a model was published with; InputError where it lacks them."""
    document = files.extras.get(FILE_NAME)
    if document is None:
        raise InputError(
            f"the model has no {FILE_NAME}, so nothing says how images become patches",
            where=files.id,
            hint=f"copy {FILE_NAME} of the original release beside config.json",
        )
    return read_image_preprocessing(document, spec)


def read_image_preprocessing(document: Mapping[str, Any], spec: VisionSpec | VisionTower) -> ImagePreprocessing:
    """The settings of `document` (a parsed preprocessor_config.json) for the tower `spec`.

    Raises InputError where they contradict themselves or the tower, CannotSay for a kind that is not known here.
    """
    top = ConfigReader(document, FILE_NAME)
    if CLASS not in document or top.has(SECTION):
        reader = top.required_section(SECTION)
        config = _read_padded(reader)
    else:
        reader = top
        config = _read_scaled(reader)
    wanted = (
        ("patch_size", config.patch_size, spec.patch_size),
        ("merge_kernel_size" if reader is not top else "merge_size", config.merge, spec.merge),
        ("temporal_patch_size", config.frames, spec.temporal_patch_size if isinstance(spec, VisionTower) else 1),
    )
    for key, ours, tower in wanted:
        if ours != tower:
            raise InputError(f"is {ours}, the vision tower was built for {tower}", where=reader.where(key))
    if 0.0 in config.std:
        raise InputError("must not contain 0", where=reader.where("image_std"))
    return config


def _read_padded(reader: ConfigReader) -> ImagePreprocessing:
    """MoonViT's settings."""
    if reader.has("fixed_output_tokens"):
        raise CannotSay("images of a fixed token count are not understood", where=reader.where("fixed_output_tokens"))
    background = _read_background(reader)
    stages = {"before_resize": True, "after_resize": False}
    return ImagePreprocessing(
        patch_size=reader.integer("patch_size"),
        merge=_read_merge(reader),
        limits=PatchLimits(reader.integer("in_patch_limit"), reader.integer("patch_limit_on_one_side")),
        mean=_read_triple(reader, "image_mean"),
        std=_read_triple(reader, "image_std"),
        background=background,
        fill_before_resize=reader.choice("transparent_bg_fill_stage", stages, "before_resize"),
        findings=_unread(reader),
    )


def _read_scaled(reader: ConfigReader) -> ImagePreprocessing:
    """Settings of a class of `_SCALED`, with its defaults."""
    name = reader.word(CLASS)
    default = _SCALED.get(name.removesuffix("Fast").removesuffix("Pil"))
    if default is None:
        raise CannotSay(f"images of class {name!r} are not understood", where=reader.where(CLASS))
    reader.ignore("processor_class", "video_processor_type", "data_format", "device", "input_data_format")
    for step in ("do_resize", "do_rescale", "do_normalize", "do_convert_rgb"):
        if not reader.flag(step, True):
            raise CannotSay("images are always scaled, normalised and made RGB here", where=reader.where(step))
    if abs(reader.number("rescale_factor", 1 / 255) * 255 - 1) > 1e-6 or reader.integer("resample", BICUBIC) != BICUBIC:
        raise CannotSay("only bicubic scaling of levels in 0..1 is known here", where=reader.where("resample"))
    merge = reader.integer("merge_size", 2)
    return ImagePreprocessing(
        patch_size=reader.integer("patch_size", 14),
        merge=(merge, merge),
        limits=_read_pixel_limits(reader, default),
        mean=_read_triple(reader, "image_mean", _CLIP_MEAN),
        std=_read_triple(reader, "image_std", _CLIP_STD),
        background="white",
        fill_before_resize=True,
        frames=reader.integer("temporal_patch_size", 2),
        findings=_unread(reader),
    )


def _read_pixel_limits(reader: ConfigReader, default: PixelLimits) -> PixelLimits:
    """Of `size`, or of the keys before it."""
    if isinstance(reader.values.get("size"), list):
        reader.ignore("size")  # MiniMax M3's releases give the sides of a square, which their class does not read
    elif (size := reader.section("size")) is not None:
        reader.ignore("min_pixels", "max_pixels")
        return PixelLimits(size.integer("shortest_edge"), size.integer("longest_edge"))
    return PixelLimits(
        reader.integer("min_pixels", default.fewest),
        reader.integer("max_pixels", default.most),
    )


def _unread(reader: ConfigReader) -> tuple[Finding, ...]:
    return tuple(
        Finding("unused_preprocessor_key", "warning", f"{FILE_NAME}: {key}", "nothing reads this setting")
        for key in reader.unused()
    )


def _read_background(reader: ConfigReader) -> Chessboard | None:
    section = reader.section("transparent_bg_config")
    if section is None:
        return None
    section.choice("pattern", {"chessboard": True})
    board = Chessboard(
        square=section.integer("chessboard_square_size"),
        white=section.integer("chessboard_white_value", minimum=0),
        gray=section.integer("chessboard_gray_value", minimum=0),
        white_first=section.flag("chessboard_square_on_top_left"),
    )
    for key, value in (("chessboard_white_value", board.white), ("chessboard_gray_value", board.gray)):
        if value > 255:
            raise InputError(f"must be at most 255, got {value}", where=section.where(key))
    return board


def _read_merge(reader: ConfigReader) -> tuple[int, int]:
    """One number for both axes, or [rows, columns]."""
    if not isinstance(reader.values.get("merge_kernel_size"), list):
        side = reader.integer("merge_kernel_size")
        return side, side
    sides = reader.integers("merge_kernel_size")
    if len(sides) != 2 or min(sides) < 1:
        raise InputError(f"must be two positive integers, got {list(sides)}", where=reader.where("merge_kernel_size"))
    return sides[0], sides[1]


def _read_triple(
    reader: ConfigReader, key: str, default: tuple[float, float, float] | None = None
) -> tuple[float, float, float]:
    if default is not None and not reader.has(key):
        return default
    values = reader.values[key] if reader.has(key) else None
    if not isinstance(values, list) or len(values) != 3 or not all(_is_number(value) for value in values):
        raise InputError(f"must be three numbers (red, green, blue), got {values!r:.80}", where=reader.where(key))
    return values[0], values[1], values[2]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
