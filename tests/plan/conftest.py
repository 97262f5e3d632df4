"""Profiles to plan for: the packaged recipes at full size, and small cousins of them for counting piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from day0.plan.accounting import accounting_for
from day0.plan.cluster import parse_cluster
from day0.plan.plan import Planner
from day0.plan.workload import make_workload
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.source.model_files import ModelFiles
from day0.source.resolve import resolve

RECIPES = ("llama-3.1-8b", "qwen3-0.6b", "mixtral-8x7b", "qwen3-30b-a3b", "kimi-k3")

SMALL_LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 640, "hidden_size": 96,
    "intermediate_size": 240, "num_hidden_layers": 5, "num_attention_heads": 12, "num_key_value_heads": 4,
    "head_dim": 8, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}  # fmt: skip
SMALL_MOE = {
    "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 1280, "hidden_size": 64,
    "intermediate_size": 192, "moe_intermediate_size": 48, "num_experts": 12, "num_experts_per_tok": 3,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16,
    "rms_norm_eps": 1e-6, "max_position_embeddings": 8192, "tie_word_embeddings": False, "norm_topk_prob": True,
    "torch_dtype": "bfloat16", "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip


def profile_of(config: dict[str, Any]) -> ArchitectureProfile:
    """A config as if it lay in a folder without weights."""
    files = ModelFiles("test", None, "config", Path("."), config, "config.json", None, (), (), {})
    return read_profile(files)


def recipe_profile(name: str) -> ArchitectureProfile:
    return read_profile(resolve(f"recipe:{name}"))


def small_kimi_k3() -> ArchitectureProfile:
    """Five layers of Kimi K3's kinds, with packed experts of four groups."""
    config = deepcopy(dict(resolve("recipe:kimi-k3").config))
    text = config["text_config"]
    text.update(
        hidden_size=128, vocab_size=640, num_hidden_layers=5, intermediate_size=192, num_attention_heads=6,
        num_key_value_heads=6, q_lora_rank=48, kv_lora_rank=32, qk_nope_head_dim=24, qk_rope_head_dim=8,
        v_head_dim=16, num_experts=12, num_experts_per_token=4, moe_intermediate_size=128,
        routed_expert_hidden_size=64, attn_res_block_size=2, max_position_embeddings=4096,
    )  # fmt: skip
    config["vision_config"].update(text_hidden_size=128, vt_num_hidden_layers=2)
    text["linear_attn_config"].update(kda_layers=[1, 2, 4], full_attn_layers=[3, 5], num_heads=12, head_dim=16)
    return profile_of(config)


@pytest.fixture(scope="session")
def profiles() -> dict[str, ArchitectureProfile]:
    return {name: recipe_profile(name) for name in RECIPES}


@pytest.fixture(scope="session")
def small() -> dict[str, ArchitectureProfile]:
    return {"llama": profile_of(SMALL_LLAMA), "moe": profile_of(SMALL_MOE), "kimi_k3": small_kimi_k3()}


@pytest.fixture(scope="session")
def kimi_k3(profiles: dict[str, ArchitectureProfile]) -> ArchitectureProfile:
    return profiles["kimi-k3"]


MakePlanner = Callable[..., Planner]


@pytest.fixture(scope="session")
def planner() -> MakePlanner:
    """`planner(profile, "h200:8", "vllm", context=8192)`; `memory_gib` replaces what the GPU has."""

    def make(
        profile: ArchitectureProfile,
        spec: str,
        engine: str = "day0",
        version: str | None = None,
        memory_gib: float | None = None,
        **demand: Any,
    ) -> Planner:
        cluster = parse_cluster(spec)
        if memory_gib is not None:
            cluster = replace(cluster, gpu=replace(cluster.gpu, memory_bytes=int(memory_gib * 2**30)))
        return Planner(profile, cluster, accounting_for(engine, version), make_workload(profile, **demand))

    return make
