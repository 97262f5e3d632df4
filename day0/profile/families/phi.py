"""Phi-3 and Phi-3.5-MoE: joined projections in the one, layer norms with biases in the other."""

from __future__ import annotations

from functools import partial

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, experts, layer_names, norm_names
from day0.profile.families.family import Family
from day0.profile.profile import ModelEnds
from day0.profile.read_experts import ExpertLine, read_expert_line
from day0.profile.read_feed_forward import read_dense
from day0.profile.read_gqa_variants import GqaLine, read_gqa_line, window_where_set
from day0.profile.storage import Storage


def _moe_ends(reader: ConfigReader) -> ModelEnds:
    return ModelEnds(head_bias=reader.flag("lm_head_bias", False))


PHI3 = Family(
    name="phi3",
    model_types=("phi3",),
    architectures=("Phi3ForCausalLM",),
    native=True,
    read_mixer=partial(read_gqa_line, line=GqaLine(bias_key=None, kind=window_where_set)),
    read_feed_forward=read_dense,
    norm_eps_default=1e-5,
    names={
        **LLAMA_NAMES,
        **layer_names(
            {
                "mixer.qkv_proj.weight": "self_attn.qkv_proj.weight",
                "ffn.gate_up_proj.weight": "mlp.gate_up_proj.weight",
            }
        ),
    },
    storage=Storage(
        joined={
            "mixer.qkv_proj": ("mixer.q_proj", "mixer.k_proj", "mixer.v_proj"),
            "ffn.gate_up_proj": ("ffn.gate_proj", "ffn.up_proj"),
        }
    ),
    # Dropout, off at inference; the architecture fixes that there are no biases; the length counts with longrope only.
    inert=("resid_pdrop", "embd_pdrop", "attention_bias", "original_max_position_embeddings"),
)

PHI_MOE = Family(
    name="phimoe",
    model_types=("phimoe",),
    architectures=("PhiMoEForCausalLM", "PhimoeForCausalLM"),
    native=True,
    read_mixer=partial(read_gqa_line, line=GqaLine(kv_heads=8, kind=window_where_set, theta=1e6)),
    read_feed_forward=partial(
        read_expert_line,
        line=ExpertLine(
            experts=("num_local_experts", "num_experts"),
            width="intermediate_size",
            scoring="sparsemixer",
            renormalize=False,
        ),
    ),
    read_ends=_moe_ends,
    norm_kind="layer_bias",
    norm_eps_default=1e-5,
    names={
        **LLAMA_NAMES,
        **norm_names({"mixer_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}),
        "norm.bias": "model.norm.bias",
        "lm_head.bias": "lm_head.bias",
        "layers.{l}.ffn.router.weight": "model.layers.{l}.block_sparse_moe.gate.weight",
        **experts("model.layers.{l}.block_sparse_moe.experts.{expert}", {"gate": "w1", "up": "w3", "down": "w2"}),
    },
    # Noise and dropout of training.
    inert=("input_jitter_noise", "expert_dropout", "hidden_dropout"),
)

PHIS = (PHI3, PHI_MOE)
