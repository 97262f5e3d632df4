"""What headers and fields say without a family: packing understood by name, layers by names and by fields."""

from __future__ import annotations

from math import prod

import pytest

from day0.profile.config_evidence import config_evidence
from day0.profile.header_counts import count_elements
from day0.profile.layer_evidence import layer_evidence
from day0.profile.sketch import sketch
from day0.profile.tensor_patterns import group_tensors
from day0.source.model_files import DTYPE_BITS, TensorHeader


def header(dtype: str, *shape: int) -> TensorHeader:
    return TensorHeader(dtype, shape, "s", 0, prod(shape) * DTYPE_BITS[dtype] // 8)


@pytest.mark.parametrize(
    ("tensors", "bits"),
    [
        ({"w.weight": header("BF16", 64, 32)}, 4),
        ({"w.weight": header("F8_E4M3", 64, 32), "w.weight_scale_inv": header("F32", 1, 1)}, 4),
        ({"w.weight_packed": header("U8", 64, 16), "w.weight_scale": header("U8", 64, 1)}, 4),
        ({"w.weight": header("U8", 64, 16), "w.weight_scale": header("F8_E4M3", 64, 2)}, 4),
        ({"w.gate_up_proj_blocks": header("U8", 64, 1, 16), "w.gate_up_proj_scales": header("U8", 64, 1)}, 4),
        ({"w.qweight": header("I32", 4, 64), "w.qzeros": header("I32", 1, 8), "w.scales": header("F16", 1, 64)}, 4),
        ({"w.weight_packed": header("I32", 64, 8), "w.weight_shape": header("I64", 2)}, 8),
        ({"w.weight": header("I8", 64, 16), "w.scale": header("F8_E8M0", 64, 1)}, 4),
    ],
)  # fmt: skip
def test_a_packed_matrix_counts_as_what_it_stands_for(tensors: dict[str, TensorHeader], bits: int) -> None:
    assert sum(count_elements(group_tensors(tensors), int_bits=bits).values()) == 64 * 32


def test_a_scale_without_packed_numbers_is_a_parameter() -> None:
    tensors = {"attn.scale": header("BF16", 8), "attn.q.weight": header("BF16", 8, 8)}
    assert sum(count_elements(group_tensors(tensors)).values()) == 72


@pytest.mark.parametrize(
    ("names", "mixer", "feed_forward"),
    [
        (("self_attn.q_proj.weight", "self_attn.k_proj.weight", "mlp.up_proj.weight"), "gqa", "dense"),
        (("self_attn.kv_a_proj_with_mqa.weight", "mlp.experts.0.w1.weight"), "mla", "moe"),
        (("self_attn.kv_b_proj.weight", "self_attn.indexer.wk.weight"), "dsa", "none"),
        (("linear_attn.A_log", "linear_attn.in_proj_qkvz.weight", "mlp.gate_proj.weight"), "gated_deltanet", "dense"),
        (("self_attn.A_log", "self_attn.f_a_proj.weight"), "kda", "none"),
        (("mixer.A_log", "mixer.D", "mixer.in_proj.weight", "norm.weight"), "mamba2", "none"),
        (("conv.conv.weight", "conv.in_proj.weight", "feed_forward.w1.weight"), "short_conv", "dense"),
        (("weird.thing", "mlp.fc1.weight"), "unknown", "dense"),
        (("mlp.experts.3.up.weight", "mlp.gate.weight", "norm.weight"), "none", "moe"),
    ],
)
def test_kinds_of_layers_by_names(names: tuple[str, ...], mixer: str, feed_forward: str) -> None:
    (layer,) = layer_evidence([f"backbone.layers.0.{name}" for name in names])
    assert (layer.mixer, layer.feed_forward) == (mixer, feed_forward)


def test_the_decoder_is_the_largest_stack_that_is_no_tower() -> None:
    names = [f"vision_tower.blocks.{i}.attn.qkv.weight" for i in range(30)]
    names += [f"model.layers.{i}.self_attn.qkv_proj.weight" for i in range(4)]
    assert [layer.index for layer in layer_evidence(names)] == [0, 1, 2, 3]
    assert layer_evidence(["a.weight"]) == ()


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        ({"layer_types": ["full_attention", "linear_attention", "conv"]}, ("attention", "linear", "conv")),
        ({"full_attn_idxs": [1]}, ("other", "attention", "other")),
        ({"full_attention_interval": 3}, ("linear", "linear", "attention")),
        ({"hybrid_override_pattern": "M-*"}, ("linear", "none", "attention")),
        ({"attn_type_list": [0, 1, 1]}, ("linear", "attention", "attention")),
        ({"layer_types": ["full_attention"]}, ()),
    ],
)
def test_kinds_of_layers_by_fields(config: dict, kinds: tuple[str, ...]) -> None:
    found = config_evidence({"text_config": {"num_hidden_layers": 3} | config})
    assert (found.num_layers, found.count_field, found.kinds) == (3, "text_config.num_hidden_layers", kinds)


def test_fields_and_names_that_disagree(files_of) -> None:
    tensors = {f"model.layers.{i}.self_attn.qkv_proj.weight": header("BF16", 8, 8) for i in range(2)}
    config = {"num_hidden_layers": 3, "layer_types": ["full_attention", "linear_attention", "full_attention"]}
    found = {finding.code: finding for finding in sketch(files_of(config, tensors=tensors)).findings}
    assert found.keys() == {"layer-count", "layer-kind-differs"}
    assert "3 layers, the tensors are those of 2" in found["layer-count"].message
    assert "layer 1: linear, tensors of gqa" in found["layer-kind-differs"].message


def test_predictors_at_the_end_of_the_stack_are_beside_the_total(files_of) -> None:
    tensors = {f"model.layers.{i}.mlp.up_proj.weight": header("BF16", 8, 4) for i in range(3)}
    drawn = sketch(files_of({"num_hidden_layers": 2}, tensors=tensors))
    assert drawn.params is not None
    assert (drawn.params.total, drawn.params.groups["mtp"], len(drawn.layers)) == (64, 32, 2)


@pytest.mark.parametrize("chosen", [2, None])
def test_active_parameters_need_a_field(files_of, chosen: int | None) -> None:
    tensors = {f"model.layers.0.mlp.experts.{i}.up_proj.weight": header("BF16", 8, 4) for i in range(4)}
    config = {"num_hidden_layers": 1, "num_experts": 4} | ({"moe_topk": chosen} if chosen else {})
    drawn = sketch(files_of(config, tensors=tensors))
    assert drawn.params is not None
    assert drawn.params.total == 128
    assert drawn.params.active == (64 if chosen else 128)
    assert ("active-unknown" in {finding.code for finding in drawn.findings}) == (chosen is None)
