from __future__ import annotations

import math

import pytest
import torch

from day0.runtime.ops.vision_positions import (
    resample,
    rotary_angles,
    time_signal,
    vision_axial_rope,
    vision_frame_embed,
    vision_grid_embed,
    vision_position_embed,
    vision_rope_2d,
)


def test_a_grid_of_the_learnt_size_is_taken_as_it_is() -> None:
    learnt = torch.randn(4, 6, 8)
    assert torch.equal(resample(learnt, 4, 6), learnt)


def test_resample_has_half_pixel_centres_and_clamped_borders() -> None:
    learnt = torch.tensor([0.0, 10.0]).view(1, 2, 1)
    # Sources (i + 0.5) / 2 - 0.5 = -0.25, 0.25, 0.75, 1.25, clamped to 0..1.
    assert torch.allclose(resample(learnt, 1, 4).flatten(), torch.tensor([0.0, 2.5, 7.5, 10.0]))


def test_resample_downwards_does_not_average() -> None:
    learnt = torch.tensor([0.0, 0.0, 100.0, 0.0, 0.0, 0.0]).view(6, 1, 1)
    # Sources 1, 4 exactly between: (0.5) * 3 - 0.5 = 1 and 4; the peak at 2 must not leak in.
    assert torch.equal(resample(learnt, 2, 1).flatten(), torch.zeros(2))


def test_rows_and_columns_are_not_exchanged() -> None:
    learnt = torch.arange(6.0).view(2, 3, 1)
    tall = resample(learnt, 4, 3)[..., 0]
    assert torch.equal(tall[0], learnt[0, :, 0])
    assert torch.equal(tall[3], learnt[1, :, 0])


def test_time_signal_values() -> None:
    signal = time_signal(3, 4)
    for frame in range(3):
        second = frame / 100.0  # 10000 ** (-1 / 2)
        wanted = [math.sin(frame), math.sin(second), math.cos(frame), math.cos(second)]
        assert signal[frame].tolist() == pytest.approx(wanted, abs=1e-6)


def test_an_image_has_no_time_and_a_clip_has_it_from_its_first_frame() -> None:
    learnt = torch.randn(3, 2, 4)
    assert torch.equal(vision_position_embed(learnt, [(1, 3, 2)]), learnt.flatten(0, 1))
    clip = vision_position_embed(learnt, [(2, 3, 2)]).view(2, 6, 4)
    added = clip - learnt.flatten(0, 1)
    assert torch.allclose(added[0], torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(6, 4))
    assert torch.allclose(added[1], time_signal(2, 4)[1].expand(6, 4), atol=1e-6)


def test_even_pairs_turn_with_the_column_and_odd_pairs_with_the_row() -> None:
    angles = rotary_angles([(2, 3, 5)], 8)
    assert angles.shape == (30, 4)
    slow = 10_000.0 ** (-4 / 8)
    for frame in range(2):
        patch = angles[frame * 15 + 2 * 5 + 4]  # row 2, column 4
        assert patch.tolist() == pytest.approx([4.0, 2.0, 4 * slow, 2 * slow])


def rotated(heads: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    return vision_rope_2d(heads, torch.zeros_like(heads), angles)[0]


def test_rotation_is_multiplication_of_complex_neighbours() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 6, 3, 8, generator=generator)
    angles = torch.randn(6, 4, generator=generator)
    turn = torch.polar(torch.ones(6, 1, 4), angles[:, None, :])
    for heads, result in zip((q, k), vision_rope_2d(q, k, angles), strict=True):
        wanted = torch.view_as_real(torch.view_as_complex(heads.view(6, 3, 4, 2)) * turn).flatten(2)
        assert torch.allclose(result, wanted, atol=1e-6)


def test_only_the_distance_between_patches_enters_a_score() -> None:
    q, k = torch.randn(2, 1, 1, 16, generator=torch.Generator().manual_seed(2))
    angles = rotary_angles([(1, 9, 9)], 16)

    def score(query: tuple[int, int], key: tuple[int, int]) -> float:
        at = [angles[row * 9 + column][None] for row, column in (query, key)]
        return float((rotated(q, at[0]) * rotated(k, at[1])).sum())

    assert score((1, 2), (4, 7)) == pytest.approx(score((3, 1), (6, 6)), abs=1e-5)
    assert score((1, 2), (4, 7)) != pytest.approx(score((1, 2), (7, 4)), abs=1e-2)


def test_rotation_keeps_the_dtype() -> None:
    heads = torch.randn(4, 2, 8, dtype=torch.bfloat16)
    assert rotated(heads, torch.zeros(4, 4)).dtype == torch.bfloat16
    assert torch.equal(rotated(heads, torch.zeros(4, 4)), heads)


def test_items_follow_one_another() -> None:
    learnt = torch.randn(3, 2, 4)
    items = [(1, 2, 2), (2, 1, 3)]
    together = vision_position_embed(learnt, items)
    assert torch.equal(together, torch.cat([vision_position_embed(learnt, [item]) for item in items]))
    angles = rotary_angles(items, 8)
    assert torch.equal(angles, torch.cat([rotary_angles([item], 8) for item in items]))


@pytest.mark.parametrize("rule", ["bilinear", "bilinear_corners", "bicubic"])
def test_a_grid_is_added_to_every_frame(rule: str) -> None:
    x, grid = torch.randn(3 * 6 + 4, 5), torch.randn(4, 4, 5)
    items = ((3, 2, 3), (1, 1, 4))
    added = vision_grid_embed(x, grid, items, rule) - x
    first, second, third = added[:18].view(3, 6, 5)
    assert torch.allclose(first, second, atol=1e-6) and torch.allclose(first, third, atol=1e-6)
    assert torch.allclose(first.view(2, 3, 5), resample(grid, 2, 3, rule), atol=1e-6)
    assert torch.allclose(added[18:].view(1, 4, 5), resample(grid, 1, 4, rule), atol=1e-6)


def test_corners_lie_on_corners() -> None:
    grid = torch.randn(3, 5, 2)
    resized = resample(grid, 7, 2, "bilinear_corners")
    assert torch.allclose(resized[::6, ::1], grid[::2, ::4])
    assert torch.allclose(resized[3, 0], grid[1, 0])


def test_only_clips_get_the_time() -> None:
    x = torch.zeros(2 * 3 + 4, 6)
    found = vision_frame_embed(x, ((2, 1, 3), (1, 2, 2)))
    assert torch.equal(found[:6], time_signal(2, 6).repeat_interleave(3, dim=0))
    assert not found[6:].any()


def test_rows_turn_the_first_half_of_the_pairs() -> None:
    """Angles of patch (2, 1): frequencies 1 and 1/100 of the row, then of the column."""
    angles = rotary_angles([(1, 3, 2)], 8, in_turn=False)
    assert torch.allclose(angles[5], torch.tensor([2.0, 0.02, 1.0, 0.01]))
    assert torch.allclose(
        rotary_angles([(1, 3, 2)], 8, theta=100.0, in_turn=False)[5], torch.tensor([2.0, 0.2, 1.0, 0.1])
    )


def test_halves_of_a_head_turn_apart() -> None:
    x, angles = torch.randn(5, 2, 8), torch.randn(5, 4)
    apart, _ = vision_axial_rope(x, x, angles, "neox", True)
    first, _ = vision_axial_rope(x[..., :4], x[..., :4], angles[:, :2], "neox", False)
    second, _ = vision_axial_rope(x[..., 4:], x[..., 4:], angles[:, 2:], "neox", False)
    assert torch.equal(apart, torch.cat((first, second), dim=-1))
    neighbours, _ = vision_axial_rope(x, x, angles, "interleaved", False)
    assert torch.allclose(neighbours, vision_rope_2d(x, x, angles)[0])
    swapped = x.unflatten(-1, (4, 2)).transpose(-1, -2).flatten(-2)
    turned, _ = vision_axial_rope(swapped, swapped, angles, "neox", False)
    assert torch.allclose(turned.unflatten(-1, (2, 4)).transpose(-1, -2).flatten(-2), neighbours)
