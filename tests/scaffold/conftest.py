"""What small models of families with operators that nobody offers need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from day0.coverage import Verdict
from day0.inventory import OperatorNeed, operators_needed
from day0.profile.read import read_profile
from day0.source.resolve import resolve

STATE_SPACE: dict[str, Any] = {
    "model_type": "nemotron_h", "hidden_size": 64, "hybrid_override_pattern": "ME*-", "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 24, "vocab_size": 100, "mamba_num_heads": 8, "mamba_head_dim": 12,
    "n_groups": 2, "ssm_state_size": 16, "conv_kernel": 4, "intermediate_size": 96, "n_routed_experts": 6,
    "num_experts_per_tok": 2, "moe_intermediate_size": 40, "moe_shared_expert_intermediate_size": 56,
    "moe_latent_size": 32, "dtype": "bfloat16",
}  # fmt: skip
COMPRESSED: dict[str, Any] = {
    "model_type": "deepseek_v4", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 1, "head_dim": 32, "qk_rope_head_dim": 8, "q_lora_rank": 24, "o_groups": 2,
    "o_lora_rank": 12, "sliding_window": 16, "index_n_heads": 3, "index_head_dim": 8, "index_topk": 16,
    "compress_ratios": [0, 4, 128], "rope_theta": 10000, "compress_rope_theta": 160000, "vocab_size": 100,
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "n_shared_experts": 1,
    "num_hash_layers": 1, "hc_mult": 4, "hc_sinkhorn_iters": 3, "hc_eps": 1e-6, "scoring_func": "sqrtsoftplus",
    "swiglu_limit": 7.0, "dtype": "bfloat16",
}  # fmt: skip
DELTA: dict[str, Any] = {
    "model_type": "qwen3_next", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100, "num_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4, "full_attention_interval": 4, "dtype": "bfloat16",
}  # fmt: skip


def needs_of(config: dict[str, Any], folder: Path) -> tuple[OperatorNeed, ...]:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return operators_needed(read_profile(resolve(str(path))))


@pytest.fixture(scope="session")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Verdict, ...]:
    """All needs of the three models, as if nobody offered anything."""
    folder = tmp_path_factory.mktemp("configs")
    needs = [need for config in (STATE_SPACE, COMPRESSED, DELTA) for need in needs_of(config, folder)]
    return tuple(Verdict(need, "gap", None, "nobody offers it on any device") for need in needs)
