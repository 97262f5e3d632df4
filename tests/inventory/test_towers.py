"""What towers need, part by part: shapes, windows, chunks, experts, bounds, what is stored and never run."""

from __future__ import annotations

from typing import Any

import pytest

from day0.inventory.towers import tower
from day0.inventory.use import Use
from day0.profile.profile import ArchitectureProfile, VisionTower
from day0.profile.read import read_profile
from day0.profile.tower_parts import (
    AxialRotation,
    BranchEnd,
    EncoderAttention,
    EncoderConvolution,
    GatedProduct,
    LearntTable,
    Nonlinearity,
    Part,
    PatchEmbedding,
    Projection,
    Stage,
    TowerExperts,
    TowerNorm,
)
from day0.source.model_files import ModelFiles


@pytest.fixture(scope="module")
def text() -> ArchitectureProfile:
    config = {"model_type": "llama", "hidden_size": 16, "vocab_size": 32, "num_attention_heads": 2}
    config |= {"num_key_value_heads": 2, "intermediate_size": 24, "num_hidden_layers": 1}
    return read_profile(ModelFiles("test", None, "config", None, config, "config.json", None, (), (), {}))


def uses(text: ArchitectureProfile, *parts: Part, path: str = "vision.tower", **stage: Any) -> list[Use]:
    """Those of a tower of these parts, less the last one, by which its vectors reach the text."""
    spec = VisionTower("made", 1, 8, 2, 4, 1, (1, 1), ("rotary",), "none", 16, (Stage(path, parts, **stage),))
    *found, last = tower(spec, text)
    assert (last.operator, last.facts) == ("embedding_scatter", (("width", 16),))
    return found


def facts(used: Use) -> dict[str, Any]:
    return dict(used.facts)


def test_a_patch_is_colours_frames_and_squares(text) -> None:
    (plain,) = uses(text, PatchEmbedding("patch_embed", 8, 3, (2, 4, 4)))
    (biased,) = uses(text, PatchEmbedding("patch_embed", 8, 3, (4, 4), bias=True))
    assert (plain.operator, facts(plain)) == ("vision_patch_embed", {"width": 8, "patch_values": 96})
    assert (biased.operator, facts(biased)["patch_values"]) == ("biased_patch_embed", 48)


def test_windows_and_groups_of_heads_are_another_operator(text) -> None:
    (whole,) = uses(text, EncoderAttention(4, 4, 8, 0.5))
    (window,) = uses(text, EncoderAttention(4, 4, 8, 0.5, window=6))
    (grouped,) = uses(text, EncoderAttention(4, 2, 8, 0.5))
    assert whole.operator == "vision_attention"
    assert window.operator == grouped.operator == "vision_window_attention"
    assert (facts(window)["window_side"], facts(grouped)["window_side"]) == (6, None)
    assert facts(grouped)["kv_heads"] == 2


def test_chunks_see_distances_from_past_to_future(text) -> None:
    attention = EncoderAttention(2, 2, 8, 0.5, chunk=12, past=7, future=3, softcap=50.0)
    (used,) = uses(text, attention, path="audio.tower")
    assert used.operator == "audio_chunk_attention"
    assert {name: facts(used)[name] for name in ("distances", "chunk", "past", "future")} == {
        "distances": 11,
        "chunk": 12,
        "past": 7,
        "future": 3,
    }


@pytest.mark.parametrize(
    ("layout", "operator", "extra"),
    [
        ("in_turn", "vision_rope_2d", {}),
        ("neox", "vision_axial_rope", {"layout": "neox", "apart": False}),
        ("interleaved", "vision_axial_rope", {"layout": "interleaved", "apart": False}),
        ("apart", "vision_axial_rope", {"layout": "neox", "apart": True}),
    ],
)
def test_rotations_by_row_and_column(text, layout, operator: str, extra: dict[str, Any]) -> None:
    (used,) = uses(text, AxialRotation(2, 8, 4, 1e4, layout=layout))
    assert used.operator == operator
    assert facts(used) == {"heads": 2, "head_dim": 8, "rope_pairs": 4} | extra


def test_a_rotation_by_frame_is_that_of_text(text) -> None:
    table, rope = uses(text, AxialRotation(2, 8, 2, 500.0, axes=1), path="audio.tower.blocks.{block}", blocks=(0,))
    assert (table.operator, facts(table)["theta"], rope.operator) == ("rope_table", 500.0, "rope")
    assert rope.place == "audio.tower.blocks.attention.rope"


def test_bounds_stand_on_both_sides_of_a_projection(text) -> None:
    found = uses(text, Projection("proj", 6, 10, bounded=True))
    assert [used.operator for used in found] == ["bounds_clamp", "linear", "bounds_clamp"]
    assert [facts(used).get("width") for used in found] == [6, None, 10]


@pytest.mark.parametrize(
    ("part", "operators"),
    [
        (GatedProduct("silu", 8), ["silu_and_mul"]),
        (GatedProduct("silu", 8, 10.0), ["clamped_silu_and_mul"]),
        (GatedProduct("gelu_tanh", 8), ["gelu_and_mul"]),
        (GatedProduct("sigmoid", 8), ["sigmoid_gate"]),
        (GatedProduct("relu", 8), ["relu", "multiply"]),
        (Nonlinearity("quick_gelu", 8), ["quick_gelu"]),
        (Nonlinearity("gelu", 8), ["gelu"]),
        (BranchEnd(8, 0.5), ["constant_scale", "residual_add"]),
        (BranchEnd(8), ["residual_add"]),
        (TowerNorm("norm", 8, "unit", 1e-6), ["unit_rms_norm"]),
        (TowerNorm("norm", 8, "layer", 1e-6), ["layer_norm"]),
        (LearntTable("gate", (1,), "gate", width=8), ["tanh_gate"]),
        (LearntTable("places", (2, 5, 8), "axes"), ["vision_place_embed"]),
        (LearntTable("tiles", (9, 16), "tiles", width=8), ["vision_tile_embed"]),
        (EncoderConvolution("conv", 8, 8, (5,), 1, False, depthwise=True), ["depthwise_convolution"]),
        (
            TowerExperts("mlp", 4, 2, 8, 6, 1.5, "silu"),
            ["linear", "moe_router_topk_sigmoid_bias", "routed_experts"],
        ),
    ],
)
def test_parts_and_their_operators(text, part: Part, operators: list[str]) -> None:
    assert [used.operator for used in uses(text, part)] == operators


def test_a_square_convolution_counts_its_taps(text) -> None:
    (used,) = uses(text, EncoderConvolution("conv", 1, 6, (3, 3), 2, True), path="audio.tower")
    assert facts(used) == {"in_features": 1, "out_features": 6, "taps": 9, "bias": True, "step": 2}


def test_what_is_stored_and_not_run_needs_nothing(text) -> None:
    assert uses(text, Projection("out", 8, 8), path="vision.tower.head", used=False) == []
