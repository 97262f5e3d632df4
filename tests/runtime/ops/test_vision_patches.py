from __future__ import annotations

import pytest
import torch

from day0.operators import MATMUL
from day0.runtime.ops.vision_patches import (
    ROWS_AT_ONCE,
    patch_merge,
    vision_attention,
    vision_attention_sdpa,
    vision_patch_embed,
    vision_window_attention,
)


def heads(patches: int, head_dim: int = 8, seed: int = 0) -> torch.Tensor:
    """q, k and v, [3, patches, 2 heads, head_dim]."""
    return torch.randn(3, patches, 2, head_dim, generator=torch.Generator().manual_seed(seed))


def test_patch_embedding_is_a_convolution_with_stride_patch() -> None:
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(1, 3, 28, 42, generator=generator)
    weight = torch.randn(5, 3, 14, 14, generator=generator)
    patches = image.unfold(2, 14, 14).unfold(3, 14, 14).permute(0, 2, 3, 1, 4, 5).reshape(6, -1)
    wanted = torch.nn.functional.conv2d(image, weight, stride=14).flatten(2)[0].T
    assert torch.allclose(vision_patch_embed(patches, weight.flatten(1)), wanted, atol=1e-4)


@pytest.mark.parametrize("attend", [vision_attention, vision_attention_sdpa])
def test_attention_stays_inside_an_item(attend) -> None:
    q, k, v = heads(9)
    outputs = attend(q, k, v, [4, 1, 4], 0.3)
    weights = torch.softmax(torch.einsum("qhd,khd->hqk", q[5:], k[5:]) * 0.3, dim=-1)
    assert torch.allclose(outputs[5:], torch.einsum("hqk,khd->qhd", weights, v[5:]), atol=1e-6)
    # An item of one patch can only return its own value.
    assert torch.allclose(outputs[4], v[4], atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lengths", [[1], [63, 100, 1], [ROWS_AT_ONCE + 44]])
def test_fused_attention_agrees_with_the_reference(lengths: list[int], dtype: torch.dtype) -> None:
    q, k, v = heads(sum(lengths), 24).to(dtype)
    ours, fused = (kernel(q, k, v, lengths, 24**-0.5) for kernel in (vision_attention, vision_attention_sdpa))
    tolerance = MATMUL[str(dtype).removeprefix("torch.")]
    assert ours.dtype == fused.dtype == dtype
    torch.testing.assert_close(fused, ours, rtol=tolerance.rtol, atol=tolerance.share * ours.float().std().item())


def test_scores_in_parts_equal_scores_at_once() -> None:
    q, k, v = heads(2 * ROWS_AT_ONCE + 7)
    weights = torch.softmax(torch.einsum("qhd,khd->hqk", q, k) * 0.5, dim=-1)
    wanted = torch.einsum("hqk,khd->qhd", weights, v)
    assert torch.allclose(vision_attention(q, k, v, [q.shape[0]], 0.5), wanted, atol=1e-5)


def test_cells_and_the_patches_in_one_go_by_rows() -> None:
    numbers = torch.arange(24.0).view(24, 1)  # 4 rows of 6 patches
    cells = patch_merge(numbers, [(1, 4, 6)], (2, 2))[..., 0]
    assert cells.tolist() == [
        [0, 1, 6, 7],
        [2, 3, 8, 9],
        [4, 5, 10, 11],
        [12, 13, 18, 19],
        [14, 15, 20, 21],
        [16, 17, 22, 23],
    ]


def test_a_cell_need_not_be_square() -> None:
    numbers = torch.arange(6.0).view(6, 1)
    assert patch_merge(numbers, [(1, 2, 3)], (1, 3))[..., 0].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_frames_are_averaged_and_items_kept_apart() -> None:
    clip = torch.tensor([0.0, 2.0, 4.0]).repeat_interleave(4).view(12, 1)
    image = torch.full((4, 1), 7.0)
    cells = patch_merge(torch.cat([clip, image]), [(3, 2, 2), (1, 2, 2)], (2, 2))
    assert cells[..., 0].tolist() == [[2.0] * 4, [7.0] * 4]


def test_squares_keep_patches_apart() -> None:
    """5 x 3 patches in squares of 2: six of them, those at the edges smaller; frames are apart too."""
    items = ((2, 5, 3),)
    q, k = torch.zeros(30, 1, 4), torch.zeros(30, 1, 4)
    v = torch.arange(30.0).view(30, 1, 1)
    found = vision_window_attention(q, k, v, items, 1.0, 2).view(2, 5, 3)
    whole = torch.arange(30.0).view(2, 5, 3)
    for frame in range(2):
        for rows in (slice(0, 2), slice(2, 4), slice(4, 5)):
            for columns in (slice(0, 2), slice(2, 3)):
                own = found[frame, rows, columns]
                assert torch.allclose(own, whole[frame, rows, columns].mean().expand_as(own))


def test_without_a_side_all_patches_of_a_frame_are_one_square() -> None:
    items = ((1, 2, 3), (1, 1, 2))
    q, k, v = (torch.randn(8, 4, 6) for _ in range(3))
    wanted = vision_attention(q, k, v, [6, 2], 0.3)
    assert torch.allclose(vision_window_attention(q, k, v, items, 0.3, None), wanted)
    shared = vision_window_attention(q, k[:, :2], v[:, :2], items, 0.3, None)
    alike = vision_attention(q, k[:, [0, 0, 1, 1]], v[:, [0, 0, 1, 1]], [6, 2], 0.3)
    assert torch.allclose(shared, alike)
