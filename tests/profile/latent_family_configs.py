"""A small config of every family around latent attention, in its publisher's spelling, by architecture."""

from __future__ import annotations

from typing import Any

_DECODER: dict[str, Any] = {
    "vocab_size": 130,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "pad_token_id": 0,
}
_LATENT = _DECODER | {
    "q_lora_rank": 24,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
}
_MOE = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 2,
    "moe_intermediate_size": 16,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.0,
}
_INDEX = {"index_n_heads": 3, "index_head_dim": 16, "index_topk": 8}
_YARN = {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "mscale": 1.0, "mscale_all_dim": 1.0}
_STREAMS = {"hc_mult": 3, "hc_eps": 1e-6, "hc_sinkhorn_iters": 5}

CONFIGS: dict[str, dict[str, Any]] = {
    "DeepseekV2ForCausalLM": _LATENT
    | _MOE
    | {"model_type": "deepseek_v2", "q_lora_rank": None, "first_k_dense_replace": 1, "topk_method": "greedy"},
    "DeepseekV3ForCausalLM": _LATENT
    | _MOE
    | {
        "model_type": "deepseek_v3",
        "first_k_dense_replace": 2,
        "n_group": 4,
        "topk_group": 2,
        "attention_bias": True,
        "rope_scaling": _YARN,
        "num_nextn_predict_layers": 1,
    },
    "DeepseekV32ForCausalLM": _LATENT | _MOE | _INDEX | {"model_type": "deepseek_v32", "first_k_dense_replace": 1},
    "GlmMoeDsaForCausalLM": _LATENT
    | _MOE
    | _INDEX
    | {"model_type": "glm_moe_dsa", "first_k_dense_replace": 1, "index_topk_freq": 2, "num_nextn_predict_layers": 1},
    "Glm4MoeLiteForCausalLM": _LATENT | _MOE | {"model_type": "glm4_moe_lite"},
    "MiniCPM3ForCausalLM": _LATENT | {"model_type": "minicpm3", "tie_word_embeddings": False, "dim_model_base": 16},
    "YoutuForCausalLM": _LATENT | {"model_type": "youtu", "tie_word_embeddings": False},
    "Mistral4ForCausalLM": _LATENT
    | _MOE
    | {
        "model_type": "mistral4",
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1e4,
            "factor": 8.0,
            "original_max_position_embeddings": 64,
            "llama_4_scaling_beta": 0.1,
            "partial_rotary_factor": 0.4,
        },
    },
    "AXK1ForCausalLM": _LATENT | _MOE | {"model_type": "axk1", "n_group": 4, "topk_group": 2},
    "AXK2ForCausalLM": _LATENT
    | _MOE
    | _INDEX
    | {"model_type": "axk2", "n_group": None, "topk_group": None, "gated_norm_rank": 5},
    "HYV4ForCausalLM": _LATENT
    | _MOE
    | _INDEX
    | {"model_type": "hy_v4", "hc_mult": 3, "indexer_types": ["full", "shared", "full", "shared"]},
    "DeepseekV4ForCausalLM": {key: value for key, value in _DECODER.items() if key != "intermediate_size"}
    | {
        "model_type": "deepseek_v4",
        "num_key_value_heads": 1,
        "head_dim": 32,
        "qk_rope_head_dim": 8,
        "q_lora_rank": 24,
        "o_groups": 2,
        "o_lora_rank": 12,
        "sliding_window": 16,
        "compress_ratios": [0, 4, 128, 4, 0],
        "num_hash_layers": 1,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "rope_scaling": {k: v for k, v in _YARN.items() if not k.startswith("mscale")},
        "num_nextn_predict_layers": 1,
    }
    | _INDEX
    | _STREAMS,
    "Dots3NoteForConditionalGeneration": {
        "model_type": "dots3_note",
        "text_config": _LATENT
        | _MOE
        | _INDEX
        | {
            "model_type": "dots3_note_text",
            "hidden_size": 5120,  # the other parts' adapters end there
            "layer_types": ["indexed_attention", "sliding_attention", "sliding_attention", "indexed_attention"],
            "per_layer_config": {
                layer: {"num_attention_heads": 2, "num_key_value_heads": 2, "kv_lora_rank": 28, "head_dim": 20}
                for layer in ("1", "2")
            },
            "head_dim": 20,
            "sliding_window": 16,
            "shared_experts_intermediate_size": 14,
        },
    },
    "Glm5NextForConditionalGeneration": {
        "model_type": "glm5_next",
        "text_config": _LATENT
        | _MOE
        | _INDEX
        | _STREAMS
        | {
            "model_type": "glm5_next_text",
            "qk_rope_head_dim": 0,
            "index_kpool": 4,
            "linear_num_heads": 5,
            "linear_head_dim": 8,
            "linear_conv_kernel_dim": 4,
        },
    },
}

OTHER_PARTS = ("vision", "audio")
"""Groups of tensors that are no part of the decoder."""
