"""What the keys of a config shrink to in a tiny model, for every family; a family's own table says what differs."""

from __future__ import annotations

from collections.abc import Mapping

LENGTH = 4096
"""Tokens of context; lengths that scaled positions start from shrink in the same proportion."""

TRAINED_LENGTHS = ("original_max_position_embeddings", "initial_context_length")

WIDTHS: Mapping[str, int] = {
    "hidden_size": 128,
    "block_dim": 128,
    "conv_dim": 128,
    "conv_dim_out": 128,
    "intermediate_size": 192,
    "intermediate_size_mlp": 224,
    "block_ff_dim": 288,
    "block_multiple_of": 32,
    "max_position_embeddings": LENGTH,
    "model_max_length": LENGTH,
    "max_sequence_length": LENGTH,
    "hidden_size_per_layer_input": 32,
    "vocab_size_per_layer_input": 320,
}
"""Multiples of 32, so that packed formats have whole groups."""

HEADS: Mapping[str, int] = {
    "num_attention_heads": 8,
    "num_heads": 8,
    "num_kv_heads_for_linear_attn": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "attention_head_dim": 32,
    "rotary_dim": 16,
    "swa_num_attention_heads": 8,
    "swa_num_key_value_heads": 2,
    "swa_head_dim": 32,
    "swa_v_head_dim": 16,
    "sliding_window": 16,
    "sliding_window_size": 16,
    "attention_chunk_size": 16,
}
"""Several query heads for each key head; windows that the shortest prompts of a checklist leave."""

LATENT: Mapping[str, int] = {
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 8,
    "qk_head_dim": 32,
    "v_head_dim": 16,
    "o_groups": 2,
    "o_lora_rank": 32,
    "gated_norm_rank": 6,
    "dim_model_base": 64,
}

INDEX: Mapping[str, int] = {
    "index_n_heads": 16,
    "index_head_dim": 32,
    "index_topk": 16,
}
"""Fewer tokens are chosen than a checklist's prompts have."""

EXPERTS: Mapping[str, int] = {
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 16),
    **dict.fromkeys(("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_k", "moe_topk"), 4),
    **dict.fromkeys(("n_group", "num_expert_group"), 4),
    "topk_group": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 96,
    "moe_shared_expert_intermediate_size": 96,
    "shared_intermediate_size": 96,
    "shared_experts_intermediate_size": 96,
    "moe_hidden_size": 64,
    "moe_latent_size": 64,
    "routed_expert_hidden_size": 64,
}
"""More experts than are chosen, and as many in a group as leave a choice inside the groups that are."""

RECURRENT: Mapping[str, int] = {
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_heads": 4,
    "linear_head_dim": 16,
    "mamba_num_heads": 8,
    "mamba_n_heads": 8,
    "mamba_head_dim": 32,
    "mamba_d_head": 32,
    "mamba_d_ssm": 256,
    "n_groups": 2,
    "mamba_n_groups": 2,
    "ssm_state_size": 16,
    "mamba_d_state": 16,
    "mamba_dt_rank": 8,
    "chunk_size": 16,
    "mamba_chunk_size": 16,
    "attn_res_block_size": 2,
}
"""Inner widths of Mamba are twice the model's, as `expand` has it."""

SIZES: Mapping[str, int] = {**WIDTHS, **HEADS, **LATENT, **INDEX, **EXPERTS, **RECURRENT}

WITHOUT: frozenset[str] = frozenset(
    {
        *("sliding_window", "rotary_dim", "q_lora_rank", "dim_model_base", "n_group", "topk_group", "num_expert_group"),
        *("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size"),
        *("moe_latent_size", "routed_expert_hidden_size", "hidden_size_per_layer_input"),
    }
)
"""To leave one of these out is to be without what it sizes, in some families; of the others each has some default."""

TOWER_SIZES: Mapping[str, int] = {
    "depth": 4,
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "intermediate_size": 96,
    "projection_intermediate_size": 96,
    "num_heads": 4,
    "num_attention_heads": 4,
    "num_position_embeddings": 64,
    "image_size": 112,
    "num_patches": 64,
    "out_hidden_size": WIDTHS["hidden_size"],
    "init_pos_emb_height": 8,
    "init_pos_emb_width": 8,
    "vt_hidden_size": 64,
    "vt_intermediate_size": 96,
    "vt_num_attention_heads": 4,
    "vt_num_hidden_layers": 2,
    "mm_hidden_size": 64,
    "text_hidden_size": WIDTHS["hidden_size"],
    "num_key_value_heads": 2,
    "attention_heads": 4,
    "num_global_layers": 2,
    "projector_input_dim": 96,
    "projector_output_dim": 96,
    "vision_output_dim": 96,
    "adapter_in_dim": 64,
    "adapter_out_dim": WIDTHS["hidden_size"],
    "moe_intermediate_size": 48,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "embed_dim": 64,
    "head_dim": 16,
    "pos_emb_height": 8,
    "pos_emb_width": 8,
}
"""Of the sections that describe an image tower."""
