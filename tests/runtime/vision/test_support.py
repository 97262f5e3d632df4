"""What towers are run: those whose parts all have steps, and that fit their text model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from day0.profile.profile import VisionTower
from day0.profile.read import read_profile
from day0.profile.tower_parts import (
    AxialRotation,
    EncoderAttention,
    GatedProduct,
    LearntTable,
    Nonlinearity,
    Part,
    PatchPool,
    Projection,
    Stage,
)
from day0.runtime.vision.support import missing_tower_part
from day0.source.resolve import resolve

RECIPES = ("kimi-k2.5", "qwen3-vl-30b-a3b", "qwen3.5-35b-a3b")


def tower(*parts: Part, **stage: bool) -> VisionTower:
    stages = (Stage("vision.tower", parts, **stage),)
    return VisionTower("made", 1, 8, 2, 4, 1, (1, 1), ("rotary",), "none", 16, stages, native=True)


@pytest.mark.parametrize("recipe", RECIPES)
def test_released_towers_are_done_whole(recipe: str) -> None:
    profile = read_profile(resolve(f"recipe:{recipe}"))
    assert isinstance(profile.vision, VisionTower) and profile.vision.native
    assert missing_tower_part(profile.vision, profile.hidden_size) is None


@pytest.mark.parametrize(
    "part",
    [
        Projection("proj", 8, 8, bounded=True),
        Projection("proj", 32, 8, cell=(2, 2)),
        LearntTable("first", (8,), "first"),
        AxialRotation(2, 8, 4, 1e4, axes=1),
        AxialRotation(2, 8, 2, 1e4),
        EncoderAttention(2, 2, 4, 0.5, chunk=3),
        GatedProduct("silu", 8, limit=7.0),
        GatedProduct("sigmoid", 8),
        Nonlinearity("relu", 8),
        PatchPool(8, (2, 2)),
    ],
    ids=repr,
)
def test_a_part_without_a_step_is_named(part: Part) -> None:
    assert missing_tower_part(tower(part), 16) == f"vision.tower: {part}"
    assert missing_tower_part(tower(part, used=False), 16) is None, "what nobody reads is not run"


def test_a_projector_for_another_text_model_is_named() -> None:
    assert missing_tower_part(replace(tower(), output_size=12), 16) == (
        "a projector that writes 12 channels for a text model of 16"
    )
