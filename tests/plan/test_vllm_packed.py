"""Packed pages by hand, and against what vLLM printed for DeepSeek-V4-Flash."""

from __future__ import annotations

import pytest

from day0.plan.memory import LayerCache, PlaneCache, RankCache
from day0.plan.vllm_packed import GROWING_BLOCK_TOKENS, packed_blocks, packs

WINDOW = PlaneCache(584, window=128)
QUARTER = LayerCache(
    (
        WINDOW,
        PlaneCache(584, stride=4),
        PlaneCache(132, stride=4, index=True),
        PlaneCache(8192, window=8, pending=True),
        PlaneCache(2048, window=8, pending=True),
    )
)
COARSE = LayerCache((WINDOW, PlaneCache(584, stride=128), PlaneCache(4096, window=128, pending=True)))
FLASH = RankCache((LayerCache((WINDOW,)),) * 2 + (QUARTER,) * 21 + (COARSE,) * 20)
"""DeepSeek-V4-Flash as both engines keep it: two layers of windows alone, 21 of ratio 4, 20 of ratio 128."""

MILLION = 1 << 20


def test_a_page_is_aligned_and_a_block_is_the_largest_groups() -> None:
    """vLLM issue 54703 and PR 52495 print 1,002,240 bytes: 21 x (37,440 + 8,640) + 20 x 1,728."""
    capacity, block = packed_blocks(FLASH, 1 << 34, MILLION, 8192, "group")
    assert block == 21 * (37440 + 8640) + 20 * 1728 == 1_002_240
    assert capacity.block_tokens == GROWING_BLOCK_TOKENS and capacity.blocks == (1 << 34) // block


@pytest.mark.parametrize(("steps", "quarter", "coarse"), [(1, 2051, 1041), (2, 4099, 2065)])
def test_windows_are_charged_in_short_blocks(steps: int, quarter: int, coarse: int) -> None:
    """The two figures of PR 52495 for two steps in flight; 43 windows are two groups of at most 22 layers."""
    capacity, _ = packed_blocks(FLASH, 1 << 34, MILLION, steps * 8192, "group")
    window = -(-(127 + steps * 8192) // 64) + 1
    assert capacity.fixed_blocks == quarter + coarse + 2 * window


def test_a_short_context_bounds_what_a_window_is_charged() -> None:
    capacity, _ = packed_blocks(FLASH, 1 << 34, 64, 8192, "group")
    assert capacity.fixed_blocks == (16 + 1) + (8 + 1) + 2 * (1 + 1)


def test_older_versions_waste_slots() -> None:
    with_predictor = RankCache((*FLASH.layers, LayerCache((WINDOW,))))
    assert packed_blocks(with_predictor, 1 << 34, MILLION, 8192, "tuples")[1] == 22 * (37440 + 8640 + 1728)
    assert packed_blocks(with_predictor, 1 << 34, MILLION, 8192, "sizes")[1] == 22 * 37440 + 21 * 8640 + 20 * 1728


@pytest.mark.parametrize(("pool_gib", "observed"), [(147.15, 20.43), (140.09, 156.9 / 8)])
def test_requests_of_a_million_tokens_on_b200(pool_gib: float, observed: float) -> None:
    """vLLM 0.25 (issue 51454) printed 20.43 with tp 8 and 156.9 over eight replicas; the pools are planned ones."""
    with_predictor = RankCache((*FLASH.layers, LayerCache((WINDOW,))))
    capacity, _ = packed_blocks(with_predictor, int(pool_gib * 2**30), MILLION, 8192, "sizes")
    assert capacity.sequences(MILLION) == pytest.approx(observed, rel=0.02)


def test_only_layers_with_both_kinds_and_no_state_are_packed() -> None:
    assert packs(FLASH)
    assert not packs(RankCache((LayerCache((WINDOW,)), LayerCache((PlaneCache(100),)))))
    assert not packs(RankCache((QUARTER, LayerCache((), state_bytes=10))))
