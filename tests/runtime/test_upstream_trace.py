"""Primitive operators of upstream definitions, counted without weights."""

from __future__ import annotations

from typing import Any

import pytest

from day0.errors import CannotSay
from day0.runtime.upstream_trace import OUTSIDE, TracedPart, UpstreamTrace, trace_upstream

DENSE: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
}  # fmt: skip
HYBRID: dict[str, Any] = {
    "model_type": "qwen3_next", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100, "num_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "decoder_sparse_step": 1, "layer_types": ["linear_attention"] * 3 + ["full_attention"],
}  # fmt: skip


def calls(trace: UpstreamTrace | TracedPart, name: str) -> tuple[int, int]:
    """(prefill, decode) calls of one operator."""
    return next(((o.prefill, o.decode) for o in trace.operators if o.name == name), (0, 0))


@pytest.fixture(scope="module")
def dense() -> UpstreamTrace:
    return trace_upstream(DENSE, ["gqa + dense"] * 3)


def test_a_dense_layer_has_seven_products_of_weights(dense: UpstreamTrace) -> None:
    layer, outside = dense.parts
    assert (layer.kind, layer.layers, outside.kind) == ("gqa + dense", 3, OUTSIDE)
    assert calls(layer, "aten.mm") == (7, 7)
    assert calls(outside, "aten.embedding") == (1, 1)
    assert calls(dense, "aten.mm") == (3 * 7 + 1, 3 * 7 + 1)


def test_parts_add_up_to_the_whole(dense: UpstreamTrace) -> None:
    layer, outside = dense.parts
    for operator in dense.operators:
        inside, beside = calls(layer, operator.name), calls(outside, operator.name)
        assert (operator.prefill, operator.decode) == tuple(3 * i + b for i, b in zip(inside, beside, strict=True))


def test_views_are_told_from_what_computes(dense: UpstreamTrace) -> None:
    views = {operator.name: operator.view for operator in dense.operators}
    assert views["aten.transpose"] and not views["aten.mm"] and not views["aten._softmax"]


def test_kinds_of_layers_are_told_apart_and_experts_do_not_need_numbers() -> None:
    trace = trace_upstream(HYBRID, ["gated_delta_net + moe"] * 3 + ["gqa + moe"], prompt_tokens=70)
    linear, full, _ = trace.parts
    assert (linear.layers, full.layers) == (3, 1)
    assert calls(linear, "aten.convolution")[0] == 1 and calls(full, "aten.convolution") == (0, 0)
    assert calls(full, "aten.topk") == (1, 1)


def test_packed_weights_are_traced_as_plain_ones() -> None:
    packed = DENSE | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    assert trace_upstream(packed, ["gqa + dense"] * 3).operators == trace_upstream(DENSE, ["x"] * 3).operators


@pytest.mark.parametrize(
    ("changes", "says"),
    (
        ({"model_type": "brand_new"}, "no definition of model type 'brand_new'"),
        ({"model_type": "brand_new", "auto_map": {}}, "code of its own, which is not run"),
        ({"model_type": None}, "no definition of model type None"),
        ({"model_type": "vit"}, "no language model for ViTConfig"),
        ({"hidden_size": "wide"}, "does not run on the meta device"),
        ({"hidden_size": 63}, "does not run on the meta device"),
    ),
)
def test_what_cannot_be_traced_is_said(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(CannotSay, match=says) as raised:
        trace_upstream(DENSE | changes, ["gqa + dense"] * 3, where="config.json")
    assert raised.value.where == "config.json"
