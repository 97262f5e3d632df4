"""A config in the words of DeepSeek's inference code is the same model as one in those of config.json."""

from __future__ import annotations

from typing import Any

import pytest

from day0.errors import InputError
from day0.profile.families.dialects import translate
from day0.profile.read import read_profile

_YARN = {
    "type": "yarn",
    "factor": 40.0,
    "original_max_position_embeddings": 4096,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}
SPARSE_NATIVE: dict[str, Any] = {
    "vocab_size": 130,
    "dim": 64,
    "inter_dim": 96,
    "moe_inter_dim": 16,
    "n_layers": 3,
    "n_dense_layers": 1,
    "n_heads": 4,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "n_activated_experts": 2,
    "n_expert_groups": 4,
    "n_limited_groups": 2,
    "route_scale": 2.5,
    "score_func": "sigmoid",
    "q_lora_rank": 24,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
    "index_n_heads": 3,
    "index_head_dim": 16,
    "index_topk": 8,
    "max_batch_size": 8,
    "max_seq_len": 16384,
}
SPARSE: dict[str, Any] = {
    "model_type": "deepseek_v32",
    "vocab_size": 130,
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 3,
    "first_k_dense_replace": 1,
    "num_attention_heads": 4,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "q_lora_rank": 24,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
    "index_n_heads": 3,
    "index_head_dim": 16,
    "index_topk": 8,
    "rope_scaling": _YARN,
}
COMPRESSED_NATIVE: dict[str, Any] = {
    "vocab_size": 130,
    "dim": 64,
    "moe_inter_dim": 16,
    "n_layers": 3,
    "n_hash_layers": 1,
    "n_mtp_layers": 1,
    "n_heads": 4,
    "head_dim": 32,
    "rope_head_dim": 8,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "n_activated_experts": 2,
    "score_func": "sqrtsoftplus",
    "route_scale": 1.5,
    "swiglu_limit": 10.0,
    "q_lora_rank": 24,
    "o_lora_rank": 12,
    "o_groups": 2,
    "window_size": 16,
    "compress_ratios": [0, 4, 128, 0],
    "index_n_heads": 3,
    "index_head_dim": 16,
    "index_topk": 8,
    "norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "rope_factor": 16,
    "original_seq_len": 64,
    "compress_rope_theta": 160000.0,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
}


def test_both_languages_describe_the_same_layers(files_of) -> None:
    native, usual = read_profile(files_of(SPARSE_NATIVE)), read_profile(files_of(SPARSE))
    assert native.family == usual.family == "deepseek_v32"
    assert native.layers == usual.layers
    assert (native.hidden_size, native.vocab_size, native.norm_eps) == (64, 130, usual.norm_eps)
    assert native.unused_config_keys == ()


def test_compressed_attention_too(files_of) -> None:
    model = read_profile(files_of(COMPRESSED_NATIVE))
    assert model.family == "deepseek_v4"
    assert [layer.mixer.kind for layer in model.layers] == ["shared_kv", "csa", "hca"]
    assert model.layers[1].mixer.attention.rope.scaling == "yarn"
    assert model.mtp is not None and model.mtp.layers[0].mixer.kind == "shared_kv"
    assert model.unused_config_keys == ()


@pytest.mark.parametrize(
    ("edits", "family"),
    [
        ({}, "deepseek_v32"),
        ({"index_topk": ...}, "deepseek_v3"),
        ({"index_topk": ..., "score_func": "softmax"}, "deepseek_v2"),
    ],
)
def test_which_model_it_is(edits: dict[str, Any], family: str, files_of) -> None:
    config = {key: value for key, value in (SPARSE_NATIVE | edits).items() if value is not ...}
    assert read_profile(files_of(config)).family == family


def test_softmax_scores_are_not_renormalised(files_of) -> None:
    config = {k: v for k, v in SPARSE_NATIVE.items() if k != "index_topk"} | {"score_func": "softmax"}
    router = read_profile(files_of(config)).layers[2].feed_forward.router
    assert (router.scoring, router.renormalize, router.correction_bias, router.best_of_group) == (
        "softmax",
        False,
        False,
        True,
    )


def test_a_rank_of_nothing_is_no_latent(files_of) -> None:
    config = {k: v for k, v in SPARSE_NATIVE.items() if k != "index_topk"} | {"q_lora_rank": 0}
    assert read_profile(files_of(config)).layers[0].mixer.q_lora_rank is None


def test_messages_and_lists_speak_the_files_language(files_of) -> None:
    with pytest.raises(InputError) as caught:
        read_profile(files_of(SPARSE_NATIVE | {"dim": "wide"}))
    assert caught.value.where == "config.json: dim"
    model = read_profile(files_of(SPARSE_NATIVE | {"n_wheels": 4}))
    assert model.unused_config_keys == ("n_wheels",)
    assert "norm_eps" in model.defaulted_config_keys and "rms_norm_eps" not in model.defaulted_config_keys


def test_fp8_is_a_packing_and_not_a_dtype() -> None:
    translation = translate(SPARSE_NATIVE | {"dtype": "fp8", "scale_fmt": "ue8m0"})
    assert translation is not None
    assert translation.values["dtype"] == "bfloat16"
    section = translation.values["quantization_config"]
    assert (section["quant_method"], section["weight_block_size"]) == ("fp8", [128, 128])
    assert section["scale_fmt"] == "ue8m0" and "scale_fmt" not in translation.values


def test_the_words_of_another_vendors_code_are_refused() -> None:
    with pytest.raises(InputError, match="vendor's own code"):
        translate({"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2})


@pytest.mark.parametrize("config", [{}, SPARSE])
def test_other_configs_are_left_alone(config: dict[str, Any]) -> None:
    assert translate(config) is None
