"""MiniMax M3: grouped-query attention, dense in the first layers and over chosen blocks after them; clamped experts."""

from __future__ import annotations

from dataclasses import replace

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import (
    LLAMA_NAMES,
    MLP_LEAVES,
    STACKED_NAMES,
    experts,
    inside,
    layer_names,
    under,
)
from day0.profile.families.family import Family, no_vision
from day0.profile.families.minimax_m2 import narrowed
from day0.profile.families.minimax_m3_vision import M3_TOWER_NAMES, read_m3_tower
from day0.profile.feed_forward import ActivationSpec, DenseFeedForward, FeedForward, RoutedExperts
from day0.profile.profile import BlockSparseAttention, GroupedQueryAttention
from day0.profile.read_block_sparse import read_block_sparse
from day0.profile.read_experts import ExpertLine, read_router, routed_by_marks, routed_by_words, routed_everywhere
from day0.profile.read_gqa_variants import GqaLine, read_gqa_line
from day0.profile.storage import Storage

_LINE = GqaLine(kv_heads=4, head_dim=128, theta=5e6, bias_key=None, qk_norm="head")
_EXPERTS = ExpertLine(
    experts=("num_local_experts", "num_experts"), scoring="sigmoid", renormalize=True, correction_bias=True
)
_FIXED = {"use_gemma_norm": True, "use_qk_norm": True, "use_routing_bias": True, "attention_output_gate": False}
"""What the architecture fixes and configs repeat."""


def _attention(reader: ConfigReader, index: int) -> GroupedQueryAttention | BlockSparseAttention:
    for key, value in _FIXED.items():
        if reader.flag(key, value) != value:
            raise InputError(f"models of this family have {str(value).lower()}", where=reader.where(key))
    reader.choice("qk_norm_type", {"per_head": "head"}, "per_head")
    return read_block_sparse(reader, index, narrowed(reader, read_gqa_line(reader, index, line=_LINE)))


def _feed_forward(reader: ConfigReader, index: int) -> FeedForward:
    """The gate is fixed whatever `hidden_act` says; dense, shared and routed MLPs each have a width of their own."""
    activation = ActivationSpec(
        "swiglu_oai", alpha=reader.number("swiglu_alpha", 1.702), limit=reader.number("swiglu_limit", 7.0)
    )
    # Read for every layer, so that a config's use of its keys does not depend on which layers are dense.
    dense_width = reader.integer("dense_intermediate_size", 12288)
    spec = RoutedExperts(
        router=replace(read_router(reader, _EXPERTS), scaling_factor=reader.number("routed_scaling_factor", 2.0)),
        width=reader.integer("intermediate_size", 3072),
        activation=activation,
        shared_width=reader.integer("shared_intermediate_size", 3072),
    )
    if reader.integer("n_shared_experts", 1) != 1:
        raise InputError("models of this family have one shared expert", where=reader.where("n_shared_experts"))
    reader.choice("scoring_func", {"sigmoid": "sigmoid"}, "sigmoid")
    return spec if _routed(reader, index) else DenseFeedForward(dense_width, activation)


def _routed(reader: ConfigReader, index: int) -> bool:
    by_marks = reader.has("moe_layer_freq")
    return routed_by_words(routed_by_marks if by_marks else routed_everywhere)(reader, index)


def _indexer_names(prefix: str) -> dict[str, str]:
    modules = ("q_proj", "k_proj", "q_norm", "k_norm")
    return layer_names({f"mixer.indexer.{m}.weight": f"self_attn.{prefix}{m}.weight" for m in modules})


_MOE = "model.layers.{l}.block_sparse_moe"
_NAMES = {
    **LLAMA_NAMES,
    **_indexer_names("index_"),
    "layers.{l}.ffn.router.weight": f"{_MOE}.gate.weight",
    "layers.{l}.ffn.router.correction_bias": f"{_MOE}.e_score_correction_bias",
    **experts(f"{_MOE}.experts.{{expert}}", {"gate": "w1", "up": "w3", "down": "w2"}),
    **under("layers.{l}.ffn.shared", f"{_MOE}.shared_experts", MLP_LEAVES),
}

_TRANSFORMERS_NAMES = {
    **LLAMA_NAMES,
    **STACKED_NAMES,
    **_indexer_names("indexer."),
    **layer_names(
        {
            "ffn.router.weight": "mlp.gate.weight",
            "ffn.router.correction_bias": "mlp.gate.e_score_correction_bias",
            "ffn.gate_up_proj.weight": "mlp.gate_up_proj.weight",
            "ffn.shared.gate_up_proj.weight": "mlp.shared_experts.gate_up_proj.weight",
            "ffn.shared.down_proj.weight": "mlp.shared_experts.down_proj.weight",
        }
    ),
}

MINIMAX_M3 = Family(
    name="minimax_m3_vl",
    model_types=("minimax_m3_vl",),
    architectures=("MiniMaxM3SparseForConditionalGeneration",),
    native=True,
    read_mixer=_attention,
    read_feed_forward=_feed_forward,
    norm_kind="rms_plus_one",
    text_section="text_config",
    names={
        **inside(_NAMES, "language_model.model."),
        "lm_head.weight": "language_model.lm_head.weight",
        **M3_TOWER_NAMES,
    },
    read_vision=read_m3_tower,
    # Configs announce predictors of further tokens, and releases have none.
    inert=("hidden_act", "num_mtp_modules", "num_nextn_predict_layers", "rotary_dim"),
)
# The decoder alone, as transformers saves it.
MINIMAX_M3_TEXT = replace(
    MINIMAX_M3,
    name="minimax_m3_vl_text",
    model_types=("minimax_m3_vl_text",),
    architectures=("MiniMaxM3VLForCausalLM",),
    text_section=None,
    read_vision=no_vision,
    names=_TRANSFORMERS_NAMES,
    storage=Storage(
        joined={
            "ffn.gate_up_proj": ("ffn.gate_proj", "ffn.up_proj"),
            "ffn.shared.gate_up_proj": ("ffn.shared.gate_proj", "ffn.shared.up_proj"),
            "ffn.experts.gate_up": ("ffn.experts.gate", "ffn.experts.up"),
        },
        stacked_experts=True,
    ),
)
MINIMAX_M3S = (MINIMAX_M3, MINIMAX_M3_TEXT)
