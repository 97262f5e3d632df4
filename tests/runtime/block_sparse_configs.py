"""A small MiniMax M3 in its publisher's spelling."""

from __future__ import annotations

from typing import Any

BLOCK, TOP_K = 8, 3
"""Tokens in a block, and blocks that are read."""
SPARSE: dict[str, Any] = {
    "use_sparse_attention": True,
    "sparse_attention_freq": [0, 1, 1],
    "sparse_disable_index_value": [0, 1, 1],
    "sparse_num_index_heads": 2,
    "sparse_index_dim": 12,
    "sparse_block_size": BLOCK,
    "sparse_topk_blocks": TOP_K,
    "sparse_local_block": 1,
    "sparse_init_block": 0,
    "sparse_score_type": "max",
}
TEXT: dict[str, Any] = {
    "model_type": "minimax_m3_vl_text",
    "vocab_size": 256,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rotary_dim": 8,
    "partial_rotary_factor": 0.5,
    "rope_theta": 10000,
    "rms_norm_eps": 1e-6,
    "use_gemma_norm": True,
    "use_qk_norm": True,
    "qk_norm_type": "per_head",
    "attention_output_gate": False,
    "hidden_act": "swigluoai",
    "swiglu_alpha": 1.702,
    "swiglu_limit": 1.5,  # small, so that the clamps are felt
    "dense_intermediate_size": 80,
    "intermediate_size": 32,
    "shared_intermediate_size": 40,
    "n_shared_experts": 1,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "scoring_func": "sigmoid",
    "use_routing_bias": True,
    "routed_scaling_factor": 2.0,
    "moe_layer_freq": [0, 1, 1],
    "num_mtp_modules": 7,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "sparse_attention_config": SPARSE,
}


def whole(text: dict[str, Any]) -> dict[str, Any]:
    """The config of a release: the decoder in a section, a tower beside it."""
    vision = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return {
        "model_type": "minimax_m3_vl",
        "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
        "text_config": text,
        "vision_config": vision | {"patch_size": 4, "image_size": 16},
        "projector_hidden_size": 48,
        "image_token_index": 5,
        "video_token_index": 6,
    }
