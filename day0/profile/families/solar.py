"""Solar Open: experts in every layer, chosen by sigmoid and bias, beside shared ones."""

from __future__ import annotations

from functools import partial

from day0.profile.families.decoder_names import LLAMA_NAMES, QWEN_MOE_NAMES
from day0.profile.families.family import Family
from day0.profile.read_experts import ExpertLine, read_expert_line
from day0.profile.read_gqa_variants import GqaLine, read_gqa_line

SOLAR_OPEN = Family(
    name="solar_open",
    model_types=("solar_open",),
    architectures=("SolarOpenForCausalLM",),
    native=True,
    read_mixer=partial(read_gqa_line, line=GqaLine(kv_heads=8, head_dim=128, theta=1e6, o_bias=False)),
    read_feed_forward=partial(
        read_expert_line,
        line=ExpertLine(
            shared="n_shared_experts",
            shared_default=1,
            scoring="sigmoid",
            renormalize_default=True,
            correction_bias=True,
            grouped=True,
            scaling="routed_scaling_factor",
        ),
    ),
    norm_eps_default=1e-5,
    names={**LLAMA_NAMES, **QWEN_MOE_NAMES},
    # Every layer is routed, whatever older releases say of the first ones; no norm on queries and keys.
    inert=("first_k_dense_replace", "intermediate_size", "use_qk_norm"),
)
