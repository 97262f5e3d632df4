"""Checkpoint names of latent attention, its indexer and shared experts, as DeepSeek's line has them."""

from __future__ import annotations

from collections.abc import Mapping

from day0.profile.families.decoder_names import LLAMA_NAMES, QWEN_MOE_NAMES, layer_names, predictor_names

_LEAVES = {
    **{f"{name}.{leaf}": f"{name}.{leaf}" for name in ("q_a_proj", "o_proj", "g_proj") for leaf in ("weight", "bias")},
    **{f"kv_a_proj.{leaf}": f"kv_a_proj_with_mqa.{leaf}" for leaf in ("weight", "bias")},
    "q_proj.weight": "q_proj.weight",
    "q_b_proj.weight": "q_b_proj.weight",
    "kv_b_proj.weight": "kv_b_proj.weight",
    "q_a_norm.weight": "q_a_layernorm.weight",
    "kv_a_norm.weight": "kv_a_layernorm.weight",
    "k_rope_norm.weight": "k_rope_only_layernorm.weight",
}
_INDEXER_LEAVES = {
    "q_b_proj.weight": "wq_b.weight",
    "k_proj.weight": "wk.weight",
    "k_norm.weight": "k_norm.weight",
    "k_norm.bias": "k_norm.bias",
    "weights_proj.weight": "weights_proj.weight",
    "pool_bias": "index_kpool_compress_ape",
    "pool_gate": "index_kpool_compress_gate",
}

LATENT_NAMES: Mapping[str, str] = {
    **LLAMA_NAMES,
    **layer_names({f"mixer.{ours}": f"self_attn.{theirs}" for ours, theirs in _LEAVES.items()}),
    **layer_names({f"mixer.indexer.{ours}": f"self_attn.indexer.{theirs}" for ours, theirs in _INDEXER_LEAVES.items()}),
    **QWEN_MOE_NAMES,
}
"""A decoder with latent attention, dense layers and experts."""

_JOINT = {
    "embed_norm.weight": "enorm.weight",
    "hidden_norm.weight": "hnorm.weight",
    "join_proj.weight": "eh_proj.weight",
    "norm.weight": "shared_head.norm.weight",
}


def with_predictors(names: Mapping[str, str]) -> dict[str, str]:
    """The same with the layers that predict further tokens, which are numbered on from the decoder's (DeepSeek-V3)."""
    return {**names, **predictor_names(names, "model.layers.{l}", _JOINT)}


PREDICTOR_COPIES = ("model.layers.{l}.embed_tokens.weight", "model.layers.{l}.shared_head.head.weight")
"""What such a layer may store a second time: the model's own tables, which are the ones that are used."""
