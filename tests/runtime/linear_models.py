"""Tiny random checkpoints of decoders with linear mixers, under the names and layouts of their publishers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.profile.tensor_spec import TensorSpec
from day0.profile.tensors import expected_tensors
from day0.source.resolve import resolve

ABSENT = object()
"""Marks a key that this model's config does not have."""

BASE: dict[str, Any] = {
    "dtype": "float32",
    "hidden_size": 64,
    "vocab_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
}
# Keys and values of a head differ in width, so that a state kept the other way round cannot pass.
DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "head_dim": 32,
}
AXES = {
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e4,
        "partial_rotary_factor": 0.25,
        "mrope_section": [2, 1, 1],
        "mrope_interleaved": True,
    }
}
SHARED = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
}
LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "moe_intermediate_size": 24,
    "num_experts": 8,
    "num_experts_per_token": 2,
    "first_k_dense_replace": 1,
    "max_position_embeddings": ABSENT,
    "model_max_length": 256,
    "rms_norm_eps": 1e-5,
    "num_shared_experts": 1,
    "routed_scaling_factor": 2.446,
    "moe_renormalize": True,
    "moe_router_activation_func": "sigmoid",
    "mla_use_nope": True,
    "num_expert_group": 1,
    "topk_group": 1,
    "hidden_act": "silu",
    "linear_attn_config": {
        "kda_layers": [1, 2, 4],
        "full_attn_layers": [3],
        "num_heads": 4,
        "head_dim": 24,
        "short_conv_kernel_size": 4,
    },
}
WEIGHED = {
    "full_attn_alpha_factor": 0.8,
    "full_attn_beta_factor": 1.3,
    "linear_attn_alpha_factor": 1.2,
    "linear_attn_beta_factor": 0.6,
    "mlp_alpha_factor": 0.9,
    "mlp_beta_factor": 1.1,
}
MAMBA2 = {"mamba_n_heads": 8, "mamba_d_state": 24, "mamba_n_groups": 2}
NEMOTRON = {
    "layers_block_type": ["mamba", "moe", "attention", "mlp", "mamba"],
    "num_hidden_layers": 5,
    "head_dim": 24,
    "mamba_num_heads": 8,
    "mamba_head_dim": 12,
    "ssm_state_size": 16,
    "n_groups": 2,
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 40,
    "moe_shared_expert_intermediate_size": 56,
    "n_group": 2,
    "topk_group": 1,
    "use_bias": True,
}
GRANITE = {
    "shared_intermediate_size": 56,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "mamba_n_heads": 8,
    "mamba_d_state": 16,
    "layer_types": ["mamba", "attention", "mamba", "mamba"],
    "residual_multiplier": 0.7,
    "embedding_multiplier": 3.0,
    "logits_scaling": 2.0,
    "attention_multiplier": 0.3,
}
FALCON = {
    "mamba_d_ssm": 96,
    "mamba_n_heads": 8,
    "mamba_n_groups": 2,
    "mamba_d_state": 16,
    "mlp_multipliers": [0.5, 0.25],
    "ssm_multipliers": [1.0, 1.5, 0.5, 0.7, 0.9],
    "ssm_in_multiplier": 1.25,
    "ssm_out_multiplier": 0.5,
    "attention_in_multiplier": 0.9,
    "attention_out_multiplier": 0.6,
    "key_multiplier": 0.4,
    "embedding_multiplier": 2.0,
    "lm_head_multiplier": 0.5,
}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3_next": ("Qwen3NextForCausalLM", DELTA | SHARED | {"mlp_only_layers": [1]}),
    "qwen3_5_text": ("Qwen3_5ForCausalLM", DELTA | AXES),
    "qwen3_5_moe_text": ("Qwen3_5MoeForCausalLM", DELTA | AXES | SHARED | {"intermediate_size": ABSENT}),
    "kimi_linear": ("KimiLinearForCausalLM", LATENT),
    "minimax": (
        "MiniMaxForCausalLM",
        {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 24, "block_size": 32, **WEIGHED},
    ),
    "lfm2": ("Lfm2ForCausalLM", {"block_multiple_of": 32, "full_attn_idxs": [1], "conv_bias": True}),
    "lfm2_moe": (
        "Lfm2MoeForCausalLM",
        SHARED
        | {"num_dense_layers": 1, "shared_expert_intermediate_size": ABSENT}
        | {"layer_types": ["conv", "full_attention", "conv", "conv"]},
    ),
    "jamba": ("JambaForCausalLM", {"attn_layer_period": 3, "attn_layer_offset": 1, "num_experts": 4}),
    "bamba": ("BambaForCausalLM", MAMBA2 | {"attn_layer_indices": [1], "mamba_proj_bias": True}),
    "nemotron_h": ("NemotronHForCausalLM", NEMOTRON),
    "granitemoehybrid": ("GraniteMoeHybridForCausalLM", GRANITE),
    "falcon_h1": ("FalconH1ForCausalLM", FALCON),
    "falcon_h1 norm": ("FalconH1ForCausalLM", FALCON | {"mamba_rms_norm": True}),
    "olmo_hybrid": ("OlmoHybridForCausalLM", {"num_key_value_heads": 4}),
}
"""By model type and variant: the architecture, and its sizes in the publisher's words."""


def prompt(length: int) -> list[int]:
    return [(91 * place + 7) % 128 for place in range(length)]


def config_of(name: str) -> dict[str, Any]:
    architecture, sizes = CONFIGS[name]
    config = {"model_type": name.split()[0], "architectures": [architecture], **BASE, **sizes}
    return {key: value for key, value in config.items() if value is not ABSENT}


def write_model(config: dict[str, Any], folder: Path) -> ArchitectureProfile:
    """A random checkpoint of a config; every bias, norm and decay is a number of its own."""
    (folder / "config.json").write_text(json.dumps(config))
    profile = read_profile(resolve(str(folder)))
    generator = torch.Generator().manual_seed(1)
    tensors = {
        name: random_values(spec, profile, generator) for spec in expected_tensors(profile) for name in spec.names()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return profile


def random_values(spec: TensorSpec, profile: ArchitectureProfile, generator: torch.Generator) -> torch.Tensor:
    noise = torch.randn(spec.shape, generator=generator)
    leaf = spec.path.rpartition(".")[2]
    if leaf == "A_log":
        return torch.log(0.2 + 4 * torch.rand(spec.shape, generator=generator))
    if "norm" in spec.path:
        less_one = profile.norm_kind == "rms_plus_one" and "o_norm" not in spec.path
        return (0.0 if less_one else 1.0) + 0.2 * noise
    if len(spec.shape) == 1:
        return 0.3 * noise
    if "conv" in spec.path:
        return 0.5 * noise
    return noise if "embed" in spec.path else noise / spec.shape[-1] ** 0.5
