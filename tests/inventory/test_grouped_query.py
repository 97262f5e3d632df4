"""Operators of grouped-query lines: what each trait of a line adds."""

from __future__ import annotations

from typing import Any

import pytest

from day0.inventory.needs import inventory_findings, layer_operators, operators_needed
from day0.operators import OPERATORS
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.source.model_files import ModelFiles

SMALL: dict[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 100,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "vocab_size": 101,
    "torch_dtype": "bfloat16",
}
EXPERTS = {"num_experts": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
GEMMA4 = {"enable_moe_block": True, "top_k_experts": 2, "hidden_size_per_layer_input": 16, "num_kv_shared_layers": 1}
LINES: dict[str, dict[str, Any]] = {
    "gpt_oss": EXPERTS,
    "gemma2": {},
    "gemma4_text": EXPERTS | GEMMA4 | {"layer_types": ["full_attention"] * 4},
    "laguna": EXPERTS,
    "kolibri1": EXPERTS,
    "llama4_text": EXPERTS,
    "qwen2_moe": EXPERTS,
    "phimoe": EXPERTS | {"lm_head_bias": True},
    "granite": {"residual_multiplier": 0.25, "embedding_multiplier": 12.0, "logits_scaling": 8.0},
    "cohere2": {},
    "qwen2_5_vl": {"rope_scaling": {"type": "mrope", "mrope_section": [1, 2, 2]}},
    "mimo_v2_flash": EXPERTS | {"n_routed_experts": 8, "v_head_dim": 6, "swa_num_key_value_heads": 3},
}


def profile_of(model_type: str) -> ArchitectureProfile:
    config = SMALL | {"model_type": model_type} | LINES[model_type]
    return read_profile(ModelFiles("test", None, "config", None, config, "config.json", None, (), (), {}))


def facts(model_type: str, operator: str) -> list[dict[str, Any]]:
    return [dict(need.facts) for need in operators_needed(profile_of(model_type)) if need.name == operator]


@pytest.mark.parametrize("model_type", LINES)
def test_every_fact_of_a_line_is_read_and_given(model_type: str) -> None:
    profile = profile_of(model_type)
    assert [finding.where for finding in inventory_findings(profile)] == []
    for need in operators_needed(profile):
        contract = OPERATORS[need.name]
        assert set(need.shapes) == set(contract.model_axes), need
        assert set(need.attributes) == set(contract.attributes), need


def test_softmaxes() -> None:
    variant = "paged_gqa_attention_variant"
    assert [f["sinks"] for f in facts("gpt_oss", variant)] == [True, True]
    assert {f["softcap"] for f in facts("gemma2", variant)} == {50.0}
    assert [(f["chunked"], f["window"]) for f in facts("llama4_text", variant)] == [(True, 8192)]
    assert {f["value_dim"] for f in facts("mimo_v2_flash", variant)} == {6}
    assert facts("granite", variant) == []


def test_a_layer_that_reads_another_cache_writes_none() -> None:
    profile = profile_of("gemma4_text")
    owner, reader = (layer_operators(profile, profile.layers[index]) for index in (0, 3))
    assert "paged_cache_write" in owner and "paged_cache_write" not in reader
    assert "unit_rms_norm" in owner and "unit_rms_norm" not in reader


def test_gemma4_layers_end_with_their_own_input_and_scale() -> None:
    profile = profile_of("gemma4_text")
    assert layer_operators(profile, profile.layers[0])[-1] == "learnt_scale"
    (lookup,) = facts("gemma4_text", "per_layer_embedding_lookup")
    assert (lookup["vocab"], lookup["width"]) == (262144, 4 * 16)


def test_experts_and_routers() -> None:
    assert facts("gpt_oss", "biased_routed_experts")[0]["activation"] == "swiglu_oai of 1.702 clamped at 7"
    assert facts("llama4_text", "input_weighted_experts") and not facts("llama4_text", "routed_experts")
    assert facts("kolibri1", "moe_router_topk_logit_bias") and facts("phimoe", "moe_router_sparsemixer")
    assert facts("gemma4_text", "moe_expert_scale") and facts("qwen2_moe", "token_sigmoid_gate")


def test_norms_residuals_and_ends() -> None:
    assert facts("gemma2", "rms_norm_plus_one") and not facts("gemma2", "rms_norm")
    assert facts("phimoe", "layer_norm") and facts("phimoe", "biased_lm_head")
    assert facts("cohere2", "layer_norm_without_bias")
    assert [f["branch"] for f in facts("granite", "weighed_residual_add")] == [0.25]
    assert sorted(f["factor"] for f in facts("granite", "constant_scale")) == [0.125, 12.0]
    assert facts("gemma2", "softcap")[0]["softcap"] == 30.0


def test_gates_and_axes() -> None:
    assert [f["heads"] for f in facts("laguna", "head_softplus_gate")] == [6]
    (table,) = facts("qwen2_5_vl", "multi_axis_rope_table")
    assert (table["position_axes"], table["sections"], table["interleaved"]) == (3, "1 2 2", False)
