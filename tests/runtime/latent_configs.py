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
