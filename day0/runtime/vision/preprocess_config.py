"""What preprocessor_config.json says about images, checked against the tower it feeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from day0.errors import CannotSay, Finding, InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.profile import VisionSpec
from day0.source.model_files import ModelFiles

FILE_NAME = "preprocessor_config.json"
SECTION = "media_proc_cfg"


@dataclass(frozen=True, slots=True)
class Chessboard:
    """What shows through transparent pixels: squares of `square` pixels in two greys, from the top left corner."""

    square: int
    white: int
    gray: int
    white_first: bool


@dataclass(frozen=True, slots=True)
class ImagePreprocessing:
    """How an image becomes patches.

    `patch_limit` bounds the patches of a whole image (before padding), `side_limit` those along one side. `mean`
    and `std` are per channel, for values in 0..1. `background` None drops the alpha channel; otherwise it is filled
    in before or after the resize. `findings` name settings that nothing here reads.
    """

    patch_size: int
    merge: tuple[int, int]
    patch_limit: int
    side_limit: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    background: Chessboard | None
    fill_before_resize: bool
    findings: tuple[Finding, ...] = ()

    @property
    def cell(self) -> tuple[int, int]:
        """Pixels (rows, columns) behind one token of the prompt; padding fills images up to multiples of it."""
        return self.patch_size * self.merge[0], self.patch_size * self.merge[1]


def image_preprocessing(files: ModelFiles, spec: VisionSpec) -> ImagePreprocessing:
    """The settings a model was published with; InputError where it lacks them."""
    document = files.extras.get(FILE_NAME)
    if document is None:
        raise InputError(
            f"the model has no {FILE_NAME}, so nothing says how images become patches",
            where=files.id,
            hint=f"copy {FILE_NAME} of the original release beside config.json",
        )
    return read_image_preprocessing(document, spec)


def read_image_preprocessing(document: Mapping[str, Any], spec: VisionSpec) -> ImagePreprocessing:
    """The settings of `document` (a parsed preprocessor_config.json) for the tower `spec`."""
    reader = ConfigReader(document, FILE_NAME).required_section(SECTION)
    if reader.has("fixed_output_tokens"):
        raise CannotSay("images of a fixed token count are not understood", where=reader.where("fixed_output_tokens"))
    background = _read_background(reader)
    stages = {"before_resize": True, "after_resize": False}
    config = ImagePreprocessing(
        patch_size=reader.integer("patch_size"),
        merge=_read_merge(reader),
        patch_limit=reader.integer("in_patch_limit"),
        side_limit=reader.integer("patch_limit_on_one_side"),
        mean=_read_triple(reader, "image_mean"),
        std=_read_triple(reader, "image_std"),
        background=background,
        fill_before_resize=reader.choice("transparent_bg_fill_stage", stages, "before_resize"),
        findings=tuple(
            Finding("unused_preprocessor_key", "warning", f"{FILE_NAME}: {key}", "nothing reads this setting")
            for key in reader.unused()
        ),
    )
    for key, ours, tower in (
        ("patch_size", config.patch_size, spec.patch_size),
        ("merge_kernel_size", config.merge, spec.merge),
    ):
        if ours != tower:
            raise InputError(f"is {ours}, the vision tower was built for {tower}", where=reader.where(key))
    if 0.0 in config.std:
        raise InputError("must not contain 0", where=reader.where("image_std"))
    return config


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


def _read_triple(reader: ConfigReader, key: str) -> tuple[float, float, float]:
    values = reader.values[key] if reader.has(key) else None
    if not isinstance(values, list) or len(values) != 3 or not all(_is_number(value) for value in values):
        raise InputError(f"must be three numbers (red, green, blue), got {values!r:.80}", where=reader.where(key))
    return values[0], values[1], values[2]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
