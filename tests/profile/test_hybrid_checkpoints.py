"""Tiny checkpoints of hybrid models that transformers writes: every name, shape and count is the one expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from day0.inventory import inventory_findings, operators_needed
from day0.profile.parameters import count_parameters
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.profile.tensors import compare_tensors, expected_tensors
from day0.source.model_files import ModelFiles
from day0.source.resolve import resolve

BASE: dict[str, Any] = {
    "hidden_size": 64,
    "vocab_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
}
DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 32,
    "head_dim": 32,
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
SHARED = EXPERTS | {"shared_expert_intermediate_size": 40}
LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "moe_intermediate_size": 24,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
}
DELTA_LISTS = {
    "kda_layers": [1, 2, 4],
    "full_attn_layers": [3],
    "num_heads": 4,
    "head_dim": 24,
    "short_conv_kernel_size": 4,
}
NEMOTRON = {
    "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
    "head_dim": 24,
    "mamba_num_heads": 8,
    "mamba_head_dim": 12,
    "ssm_state_size": 16,
    "n_groups": 2,
    "n_routed_experts": 6,
    "moe_intermediate_size": 40,
    "moe_shared_expert_intermediate_size": 56,
    "moe_latent_size": 32,
    "n_group": 2,
    "topk_group": 1,
    "use_bias": True,
}
CONVOLUTIONS = ["conv", "full_attention", "conv", "full_attention"]
SMALL_MAMBA = {"mamba_n_heads": 8, "mamba_d_state": 16, "mamba_n_groups": 2, "mamba_proj_bias": True}
RELATIVE = {
    "head_dim": 24,
    "swa_head_dim": 16,
    "swa_num_attention_heads": 6,
    "swa_num_key_value_heads": 3,
    "sliding_window_size": 8,
    "d_rel": 5,
    "rel_extent": 20,
    "moe_intermediate_size": 24,
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
    "layer_types": ["hybrid_sliding", "hybrid", "hybrid_sliding", "hybrid"],
}
COMPRESSED = {
    "head_dim": 16,
    "num_experts": 4,
    "moe_intermediate_size": 24,
    "intermediate_size": None,
    "router_hidden_size": 20,
    "layer_types": ["hybrid", "hybrid_sliding", "hybrid", "hybrid"],
    "sliding_window": 8,
    "cca_time0": 3,
}
FALCON = {
    "mamba_d_ssm": 96,
    "mamba_n_heads": 8,
    "mamba_n_groups": 2,
    "mamba_d_state": 16,
    "mamba_rms_norm": True,
    "mlp_multipliers": [0.5, 0.25],
    "ssm_multipliers": [1.0, 2.0, 3.0, 4.0, 5.0],
}
GRANITE = {
    "shared_intermediate_size": 56,
    "num_local_experts": 6,
    "mamba_n_heads": 8,
    "mamba_d_state": 16,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
}
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3_next": DELTA | SHARED | {"mlp_only_layers": [1]},
    "qwen3_5_text": DELTA,
    "qwen3_5_moe_text": DELTA | SHARED | {"intermediate_size": None},
    "lfm2": {"block_multiple_of": 32, "full_attn_idxs": [1], "conv_bias": True},
    "lfm2_moe": EXPERTS | {"num_dense_layers": 1, "layer_types": CONVOLUTIONS},
    "jamba": {"attn_layer_period": 3, "attn_layer_offset": 1, "num_experts": 4, "mamba_dt_rank": "auto"},
    "bamba": SMALL_MAMBA | {"attn_layer_indices": [1], "mlp_bias": True},
    "nemotron_h": NEMOTRON,
    "zaya": COMPRESSED,
    "inkling_text": RELATIVE,
    "falcon_h1": FALCON,
    "granitemoehybrid": GRANITE,
    "minimax": {"num_local_experts": 4, "head_dim": 32, "block_size": 32},
    "olmo_hybrid": {"num_key_value_heads": 4},
    "kimi_linear": LATENT | {"linear_attn_config": DELTA_LISTS},
    "bailing_hybrid": LATENT | {"layer_group_size": 2, "q_lora_rank": 24, "n_group": 2, "topk_group": 1},
}
RENAMED_ON_SAVING = ("olmo_hybrid", "kimi_linear", "bailing_hybrid")
"""transformers reads the published names of these and writes some back differently: only counts are compared."""


BIASES = ("correction_bias", "expert_bias", "balancing_biases")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[ModelFiles, int]]:
    """A checkpoint of each, and how many numbers it stores (correction biases are buffers to transformers)."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    written = {}
    for model_type, config in CONFIGS.items():
        folder: Path = tmp_path_factory.mktemp(model_type)
        torch.manual_seed(0)
        extra = {"num_mtp_layers": 0} if model_type == "bailing_hybrid" else {}
        keys = {key: value for key, value in (BASE | config | extra).items() if value is not None}
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(model_type, **keys))
        model.save_pretrained(folder)
        biases = sum(b.numel() for name, b in model.named_buffers() if name.endswith(BIASES))
        written[model_type] = resolve(str(folder)), sum(p.numel() for p in model.parameters()) + biases
    return written


@pytest.mark.parametrize("model_type", CONFIGS)
def test_every_parameter_is_counted(saved: dict[str, tuple[ModelFiles, int]], model_type: str) -> None:
    files, stored = saved[model_type]
    assert count_parameters(read_profile(files)).total == stored


@pytest.mark.parametrize("model_type", CONFIGS)
def test_no_key_goes_unread(saved: dict[str, tuple[ModelFiles, int]], model_type: str) -> None:
    assert read_profile(saved[model_type][0]).unused_config_keys == ()


@pytest.mark.parametrize("model_type", CONFIGS)
def test_operators_of_every_part_are_known(saved: dict[str, tuple[ModelFiles, int]], model_type: str) -> None:
    profile = read_profile(saved[model_type][0])
    assert inventory_findings(profile) == ()
    placed = {layer for need in operators_needed(profile) for layer in need.layers}
    assert placed == {layer.index for layer in profile.layers}


@pytest.mark.parametrize("model_type", [name for name in CONFIGS if name not in RENAMED_ON_SAVING])
def test_names_and_shapes_are_those_stored(saved: dict[str, tuple[ModelFiles, int]], model_type: str) -> None:
    files, _ = saved[model_type]
    comparison = compare_tensors(read_profile(files), files)
    assert comparison.missing == () and comparison.unexpected == ()
    assert [finding for finding in comparison.findings if finding.severity != "note"] == []


@pytest.mark.parametrize("model_type", ["qwen3_5_text", "qwen3_5_moe_text"])
def test_text_under_a_tower_keeps_the_tower_s_names(saved: dict[str, tuple[ModelFiles, int]], model_type: str) -> None:
    """Without headers the names are those of the whole model; headers of text trained alone choose its own."""
    alone = read_profile(saved[model_type][0])
    bare = _without_headers(saved[model_type][0])
    assert _embedding(alone) == "model.embed_tokens.weight"
    assert _embedding(bare) == "model.language_model.embed_tokens.weight"


def _without_headers(files: ModelFiles) -> ArchitectureProfile:
    assert files.folder is not None
    return read_profile(resolve(str(files.folder / "config.json")))


def _embedding(profile: ArchitectureProfile) -> str:
    return next(spec.name for spec in expected_tensors(profile) if spec.path == "embed.weight")
