"""Configs of small decoders with latent attention, each in its publisher's spelling."""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]

YARN = {
    "type": "yarn",
    "factor": 40,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 64,
}

_SIZES: Config = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
    "attention_bias": False,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
_EXPERTS: Config = {
    "moe_intermediate_size": 32,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_group": 8,
    "topk_group": 4,
    "norm_topk_prob": True,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "routed_scaling_factor": 2.5,
}
_INDEX: Config = {"index_n_heads": 16, "index_head_dim": 20, "index_topk": 24}

DEEPSEEK_V3: Config = {
    **_SIZES,
    **_EXPERTS,
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "rope_theta": 10000,
    "rope_scaling": YARN,
}
KIMI_K2: Config = {
    **DEEPSEEK_V3,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 2.827,
    "rope_theta": 50000.0,
    "rope_scaling": YARN | {"factor": 32.0, "beta_fast": 1.0},
}
"""Kimi K2's own spelling but for its model_type, which transformers does not have."""

DEEPSEEK_V2: Config = {
    **_SIZES,
    **_EXPERTS,
    "model_type": "deepseek_v2",
    "architectures": ["DeepseekV2ForCausalLM"],
    "n_group": 4,
    "topk_group": 2,
    "n_shared_experts": 2,
    "norm_topk_prob": False,
    "scoring_func": "softmax",
    "topk_method": "group_limited_greedy",
    "routed_scaling_factor": 16.0,
    "rope_theta": 10000,
    "rope_scaling": YARN | {"mscale": 0.707, "mscale_all_dim": 0.707},
}
GLM4_MOE_LITE: Config = {
    **_SIZES,
    **{key: value for key, value in _EXPERTS.items() if key not in ("first_k_dense_replace", "moe_layer_freq")},
    "model_type": "glm4_moe_lite",
    "architectures": ["Glm4MoeLiteForCausalLM"],
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.8,
    "rope_interleave": True,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
}
_PLAIN_ROPE: Config = {"rope_theta": 10000.0, "rope_type": "default"}
_LISTED: Config = {key: GLM4_MOE_LITE[key] for key in _EXPERTS if key in GLM4_MOE_LITE} | {
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "routed_scaling_factor": 2.5,
    "rope_parameters": _PLAIN_ROPE,
}
MINICPM3: Config = {
    **_SIZES,
    "model_type": "minicpm3",
    "architectures": ["MiniCPM3ForCausalLM"],
    "dim_model_base": 32,
    "scale_depth": 1.4,
    "scale_emb": 12,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "rope_parameters": _PLAIN_ROPE,
}
MISTRAL4: Config = {
    **_SIZES,
    **{key: value for key, value in _LISTED.items() if key not in ("mlp_layer_types", "scoring_func", "topk_method")},
    "model_type": "mistral4",
    "architectures": ["Mistral4ForCausalLM"],
    "qk_nope_head_dim": 8,
    "head_dim": 16,
    "first_k_dense_replace": 0,
    "rope_interleave": True,
    # Queries grow from the sixteenth token on.
    "rope_parameters": YARN
    | {"rope_theta": 10000.0, "rope_type": "yarn", "llama_4_scaling_beta": 0.1, "partial_rotary_factor": 0.5}
    | {"original_max_position_embeddings": 16},
}
AXK1: Config = {
    **_SIZES,
    **{key: value for key, value in _LISTED.items() if key not in ("scoring_func", "topk_method")},
    "model_type": "axk1",
    "architectures": ["AXK1ForCausalLM"],
    "n_group": 8,
    "topk_group": 4,
    "rope_interleave": True,
}
YOUTU: Config = {
    **_SIZES,
    "model_type": "youtu",
    "architectures": ["YoutuForCausalLM"],
    "head_dim": 8,
    "tie_word_embeddings": True,
    "rope_interleave": True,
    "rope_theta": 1600000.0,
}
DEEPSEEK_V32: Config = {
    **DEEPSEEK_V3,
    **_INDEX,
    "model_type": "deepseek_v32",
    "architectures": ["DeepseekV32ForCausalLM"],
}
GLM_MOE_DSA: Config = {
    **_SIZES,
    **_EXPERTS,
    **_INDEX,
    "model_type": "glm_moe_dsa",
    "architectures": ["GlmMoeDsaForCausalLM"],
    "num_hidden_layers": 8,
    "n_group": 1,
    "topk_group": 1,
    "index_topk_freq": 4,
    "index_skip_topk_offset": 3,
    "indexer_rope_interleave": True,
    "rope_interleave": True,
    "rope_parameters": {"rope_theta": 8000000, "rope_type": "default"},
}
DEEPSEEK_V4: Config = {
    "model_type": "deepseek_v4",
    "architectures": ["DeepseekV4ForCausalLM"],
    "vocab_size": 256,
    "hidden_size": 64,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 24,
    "qk_rope_head_dim": 8,
    "q_lora_rank": 20,
    "o_groups": 2,
    "o_lora_rank": 12,
    "sliding_window": 8,
    "layer_types": [
        "sliding_attention",
        "compressed_sparse_attention",
        "heavily_compressed_attention",
        "compressed_sparse_attention",
        "heavily_compressed_attention",
    ],
    "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 16},
    "index_n_heads": 16,
    "index_head_dim": 20,
    "index_topk": 6,
    "compress_rope_theta": 160000,
    "hc_mult": 4,
    "hc_eps": 1e-6,
    "hc_sinkhorn_iters": 20,
    "num_hash_layers": 2,
    "moe_intermediate_size": 32,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "norm_topk_prob": True,
    "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc",
    "routed_scaling_factor": 1.5,
    "swiglu_limit": 1.0,
    "hidden_act": "silu",
    "attention_bias": False,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000,
    "rope_scaling": {
        "type": "yarn",
        "factor": 16,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 64,
    },
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
_SPARSE_LISTED: Config = {
    **_SIZES,
    **{key: value for key, value in _LISTED.items() if key not in ("scoring_func", "topk_method")},
    **_INDEX,
}
AXK2: Config = {
    **_SPARSE_LISTED,
    "model_type": "axk2",
    "architectures": ["AXK2ForCausalLM"],
    "gated_norm_rank": 6,
}
HY_V4: Config = {
    **_SPARSE_LISTED,
    "model_type": "hy_v4",
    "architectures": ["HYV4ForCausalLM"],
    "num_hidden_layers": 6,
    "mlp_layer_types": ["dense", *["sparse"] * 5],
    "indexer_types": ["full", "full", "shared", "shared", "full", "shared"],
    "hc_eps": 1e-6,
    "hc_magnitude": 2.0,
    "hc_mult": 4,
    "swiglu_limit": 1.0,
    "pad_token_id": 0,
}
GLM5_NEXT: Config = {
    **_SPARSE_LISTED,
    "model_type": "glm5_next_text",
    "architectures": ["Glm5NextForCausalLM"],
    "num_hidden_layers": 5,
    "mlp_layer_types": ["dense", *["sparse"] * 4],
    "layer_types": [
        "linear_attention",
        "indexed_attention",
        "linear_attention",
        "indexed_attention",
        "linear_attention",
    ],
    "indexer_types": ["full"] * 5,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 0,
    "head_dim": 0,
    "index_topk": 16,
    "index_kpool": 4,
    "index_kpool_always_select_tail": True,
    "linear_conv_kernel_dim": 4,
    "linear_head_dim": 16,
    "linear_num_heads": 4,
    "linear_lower_bound": -5.0,
    "hc_eps": 1e-6,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "swiglu_limit": 1.0,
    "rms_norm_eps": 1e-5,
    "pad_token_id": 0,
}
"""The decoder of GLM-5-Next by itself; transformers has it inside the multimodal model alone."""
