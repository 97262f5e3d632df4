"""Tiny configs of grouped-query families, in the words of transformers, one or more variants each.

A variant that needs to say nothing besides its sizes has an empty entry. Sizes differ from each other wherever a
mistaken one would go unseen: heads, groups, widths.
"""

from __future__ import annotations

from typing import Any

SIZES: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_ROUTED = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_DEEPSEEK_ROUTED = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 1.7,
}
_WINDOWS = {"sliding_window": 9, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 5000.0}
_PARTIAL = {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5}

_TOWER = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 2,
    "out_hidden_size": 48,
    "deepstack_visual_indexes": [0],
}
TOWERS: dict[str, dict[str, Any]] = {"qwen3_vl": _TOWER, "qwen3_vl_moe": _TOWER}
"""Families whose decoder is the text part of a model with images, and the tower beside it."""

STORED_TURNED = {"qwen3_vl_moe": ("experts.gate_up_proj", "experts.down_proj")}
"""Names of stacked experts that a publisher stores [experts, in, out] and transformers saves the other way round."""

VARIANTS: dict[str, dict[str, Any]] = {
    "gpt_oss": {
        "sliding_window": 9,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "rope_parameters": _YARN | {"truncate": False, "beta_fast": 32.0, "beta_slow": 1.0},
    },
    "minimax_m2": {
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "intermediate_size": 32,
        "rope_parameters": _PARTIAL,
    },
    "mimo_v2_flash": _DEEPSEEK_ROUTED
    | {
        "n_shared_experts": None,
        "head_dim": 24,
        "v_head_dim": 8,
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 4,
        "swa_head_dim": 24,
        "swa_v_head_dim": 8,
        "sliding_window": 9,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        "attention_value_scale": 0.7,
    },
    "qwen2": {},
    "qwen2 windows": {"use_sliding_window": True} | _WINDOWS,
    "qwen2_moe": _ROUTED | {"shared_expert_intermediate_size": 40},
    "qwen2_moe normed weights": _ROUTED | {"shared_expert_intermediate_size": 40, "norm_topk_prob": True},
    "mistral": {"sliding_window": 9},
    "ministral3": {"rope_parameters": _YARN | {"llama_4_scaling_beta": 0.3}},
    "phi3": {},
    "phi3 partial": {"rope_parameters": _PARTIAL},
    "phimoe": {"num_local_experts": 6, "num_experts_per_tok": 2, "lm_head_bias": True, "attention_bias": True},
    "gemma": {"tie_word_embeddings": True},
    "gemma2": {"tie_word_embeddings": True, "query_pre_attn_scalar": 20} | _WINDOWS,
    "gemma3_text": {"tie_word_embeddings": True, "query_pre_attn_scalar": 20} | _WINDOWS,
    "gemma4_text": {
        "tie_word_embeddings": True,
        "hidden_size_per_layer_input": 0,
        "num_global_key_value_heads": 2,
        "global_head_dim": 32,
        "num_kv_shared_layers": 0,
    }
    | _WINDOWS
    | {"layer_types": ["sliding_attention", "full_attention", "full_attention"]},
    "gemma4_text experts": {
        "tie_word_embeddings": True,
        "hidden_size_per_layer_input": 0,
        "enable_moe_block": True,
        "num_experts": 6,
        "top_k_experts": 2,
        "moe_intermediate_size": 32,
        "attention_k_eq_v": True,
        "num_global_key_value_heads": 1,
        "global_head_dim": 32,
        "num_kv_shared_layers": 0,
    }
    | _WINDOWS
    | {"layer_types": ["sliding_attention", "full_attention", "full_attention"]},
    "gemma4_text layer inputs": {
        "tie_word_embeddings": True,
        "num_hidden_layers": 4,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 256,
        "global_head_dim": 32,
        "num_kv_shared_layers": 2,
    }
    | _WINDOWS
    | {"layer_types": ["sliding_attention", "full_attention"] * 2},
    "glm": {"attention_bias": True, "rope_parameters": _PARTIAL},
    "glm4": {"rope_parameters": _PARTIAL},
    "glm4_moe": _DEEPSEEK_ROUTED | {"use_qk_norm": True, "rope_parameters": _PARTIAL},
    "dots1": _DEEPSEEK_ROUTED | {"sliding_window": None},
    "olmo2": {},
    "olmo3": _WINDOWS,
    "olmoe": {"hidden_size": 64, "num_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 32},
    "granite": {
        "attention_multiplier": 0.3,
        "residual_multiplier": 0.6,
        "embedding_multiplier": 3.0,
        "logits_scaling": 2.5,
    },
    "granitemoe": {
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "intermediate_size": 32,
        "attention_multiplier": 0.3,
        "residual_multiplier": 0.6,
    },
    "granitemoeshared": {
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "intermediate_size": 32,
        "shared_intermediate_size": 40,
        "attention_multiplier": 0.3,
    },
    "cohere": {"tie_word_embeddings": True, "logit_scale": 0.25},
    "cohere2": {"tie_word_embeddings": True, "logit_scale": 0.25} | _WINDOWS,
    "smollm3": {"no_rope_layers": [1, 0, 1]},
    "exaone4": _WINDOWS,
    "exaone_moe": _DEEPSEEK_ROUTED
    | _WINDOWS
    | {
        "num_experts": 8,
        "num_shared_experts": 1,
        "mlp_layer_types": ["dense", "sparse", "sparse"],
    },
    "hunyuan_v1_dense": {
        "rope_parameters": {"rope_type": "dynamic", "alpha": 50.0, "factor": 1.0, "rope_theta": 5000.0}
    },
    "hunyuan_v1_moe": {"num_experts": 6, "moe_topk": 2, "num_shared_expert": 1, "moe_intermediate_size": 80},
    "hy_v3": _ROUTED | {"num_shared_experts": 1, "router_scaling_factor": 1.7, "first_k_dense_replace": 1},
    "ernie4_5": {"use_bias": True},
    "ernie4_5_moe": {
        "moe_num_experts": 6,
        "moe_k": 2,
        "moe_intermediate_size": 32,
        "moe_num_shared_experts": 1,
        "moe_layer_start_index": 1,
        "use_bias": True,
    },
    "seed_oss": {"attention_bias": True, "attention_out_bias": False},
    "arcee": {},
    "afmoe": _ROUTED
    | _WINDOWS
    | {"num_shared_experts": 1, "num_dense_layers": 1, "mup_enabled": True, "route_scale": 1.7},
    "laguna": _ROUTED
    | _WINDOWS
    | {"shared_expert_intermediate_size": 40, "mlp_layer_types": ["dense", "sparse", "sparse"]},
    "laguna gates by channel": _ROUTED
    | _WINDOWS
    | {
        "shared_expert_intermediate_size": 40,
        "gating": "per-element",
        "mlp_layer_types": ["dense", "sparse", "sparse"],
    },
    "flint": _ROUTED | _WINDOWS | {"shared_expert_intermediate_size": 40, "mlp_only_layers": [0]},
    "kolibri1": _ROUTED | _WINDOWS | {"shared_expert_intermediate_size": 40, "num_local_experts": 6},
    "mellum": _ROUTED | _WINDOWS,
    "solar_open": _DEEPSEEK_ROUTED,
    "starcoder2": {"tie_word_embeddings": True, "norm_epsilon": 1e-5},
    "starcoder2 window, no biases": {"sliding_window": 9, "use_bias": False},
    "llama4_text": {
        "num_hidden_layers": 4,
        "intermediate_size": 32,
        "intermediate_size_mlp": 80,
        "num_local_experts": 6,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2,
        "attention_chunk_size": 9,
        "floor_scale": 8,
        "attn_scale": 0.3,
    },
    "qwen3_vl": {
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "mrope_section": [4, 2, 2]},
    },
    "qwen3_vl_moe": _ROUTED
    | {
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "mrope_section": [4, 2, 2]},
    },
}
