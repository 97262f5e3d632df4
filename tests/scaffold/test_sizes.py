"""Small sizes keep the relations that a kernel relies on."""

from __future__ import annotations

import pytest

from day0.inventory import Fact, OperatorNeed
from day0.operators import OPERATORS
from day0.scaffold.sizes import small_need


def small(name: str, shapes: dict[str, int], **attributes: Fact) -> tuple[dict[str, int], dict[str, Fact]]:
    assert {*shapes} == {*OPERATORS[name].model_axes}
    return small_need(OperatorNeed(name, (0,), ("prefill",), shapes, attributes, "bfloat16", ("x",)))


def test_query_heads_stay_a_multiple_of_shared_ones_and_windows_end_early() -> None:
    sizes, attributes = small("paged_gqa_attention", {"heads": 96, "kv_heads": 8, "head_dim": 128}, window=4096)
    assert sizes == {"heads": 8, "kv_heads": 2, "head_dim": 128}
    assert attributes["window"] == 5
    assert small("paged_gqa_attention", {"heads": 6, "kv_heads": 6, "head_dim": 64}, window=None) == (
        {"heads": 2, "kv_heads": 2, "head_dim": 64}, {"window": None},
    )  # fmt: skip


def test_experts_stay_in_their_groups_and_are_more_than_are_chosen() -> None:
    facts: dict[str, Fact] = {"num_groups": 8, "topk_groups": 4}
    sizes, _ = small("moe_router_topk_sigmoid_bias", {"experts": 256, "top_k": 8}, **facts)
    assert sizes["experts"] % 8 == 0 and sizes["top_k"] == 4
    assert small("moe_router_topk_softmax", {"experts": 8, "top_k": 2})[0] == {"experts": 4, "top_k": 2}


def test_what_a_router_scores_beside_experts_is_kept() -> None:
    shapes = {"choices": 258, "experts": 256, "single": 1, "top_k": 6, "shared_experts": 2}
    sizes, _ = small("moe_router_topk_shared", shapes)
    assert sizes["choices"] - sizes["experts"] == sizes["shared_experts"] == 2


def test_streams_and_groups_of_channels_come_out_even() -> None:
    shapes = {"streams": 4, "width": 4096, "flat_width": 16384, "mixing_weights": 24, "scales": 3}
    sizes, _ = small("hyper_connection_read", shapes)
    assert sizes["flat_width"] == 4 * sizes["width"] and sizes["mixing_weights"] == 24
    assert small("group_rms_norm", {"width": 8192}, norm_groups=8)[0]["width"] % 8 == 0


@pytest.mark.parametrize(("bits", "group"), ((4, 128), (8, 32), (4, 7168)))
def test_packed_words_hold_what_they_should(bits: int, group: int) -> None:
    shapes = {"rows": 4096, "columns": 7168, "row_words": 7168 * bits // 32, "row_groups": 7168 // group}
    sizes, attributes = small("int_packed_dequantize", shapes, bits=bits, group_size=group)
    assert sizes["row_words"] * 32 == sizes["columns"] * bits
    assert sizes["row_groups"] * int(attributes["group_size"] or 0) == sizes["columns"]


def test_the_last_block_is_smaller() -> None:
    shapes = {"rows": 512, "columns": 7168, "row_blocks": 4, "column_blocks": 56}
    sizes, _ = small("fp8_block_dequantize", shapes, block_rows=128, block_columns=128)
    assert sizes["rows"] % 128 and sizes["columns"] % 128 and sizes["row_blocks"] == sizes["column_blocks"] == 2
