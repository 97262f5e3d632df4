"""Grouped-query decoders: Llama, Qwen3 dense, Mixtral and Qwen3-MoE."""

from __future__ import annotations

from functools import partial

from day0.profile.families.decoder_names import LLAMA_NAMES, experts
from day0.profile.families.family import Family
from day0.profile.read_feed_forward import read_dense, read_mixtral_experts, read_qwen_moe
from day0.profile.read_mixers import GqaDefaults, read_gqa

_TINY = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rope_scaling.original_max_position_embeddings": 64,
    "rope_parameters.original_max_position_embeddings": 64,
}

LLAMA = Family(
    name="llama",
    model_types=("llama", "iquestcoder"),
    architectures=("LlamaForCausalLM",),
    native=True,
    read_mixer=partial(read_gqa, defaults=GqaDefaults()),
    read_feed_forward=partial(read_dense, bias_key="mlp_bias"),
    names=LLAMA_NAMES,
    tiny=_TINY | {"head_dim": 16},
)

QWEN3 = Family(
    name="qwen3",
    model_types=("qwen3",),
    architectures=("Qwen3ForCausalLM",),
    native=True,
    read_mixer=partial(read_gqa, defaults=GqaDefaults(kv_heads=32, head_dim=128, qk_norm="head", window="layered")),
    read_feed_forward=read_dense,
    names=LLAMA_NAMES,
    tiny=_TINY | {"head_dim": 32},
)

MIXTRAL = Family(
    name="mixtral",
    model_types=("mixtral",),
    architectures=("MixtralForCausalLM",),
    native=True,
    read_mixer=partial(read_gqa, defaults=GqaDefaults(kv_heads=8, theta=1e6, bias=None, window="plain")),
    read_feed_forward=read_mixtral_experts,
    names={
        **LLAMA_NAMES,
        "layers.{l}.ffn.router.weight": "model.layers.{l}.block_sparse_moe.gate.weight",
        **experts("model.layers.{l}.block_sparse_moe.experts.{expert}", {"gate": "w1", "up": "w3", "down": "w2"}),
    },
    norm_eps_default=1e-5,
    tiny=_TINY | {"head_dim": 16, "intermediate_size": 96, "num_local_experts": 8, "num_experts_per_tok": 2},
)

QWEN3_MOE = Family(
    name="qwen3_moe",
    model_types=("qwen3_moe",),
    architectures=("Qwen3MoeForCausalLM",),
    native=True,
    read_mixer=partial(read_gqa, defaults=GqaDefaults(kv_heads=4, qk_norm="head", window="switched")),
    read_feed_forward=read_qwen_moe,
    names={
        **LLAMA_NAMES,
        "layers.{l}.ffn.router.weight": "model.layers.{l}.mlp.gate.weight",
        **experts("model.layers.{l}.mlp.experts.{expert}", {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}),
    },
    # Old writers repeat what the architecture fixes: no bias on q, k, v, and a norm on q and k.
    inert=("qkv_bias", "use_qk_norm"),
    tiny=_TINY
    | {
        "head_dim": 32,
        "moe_intermediate_size": 48,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [1],
    },
)
