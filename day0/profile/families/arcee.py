"""Arcee's decoders: a dense one with squared-ReLU MLPs, and AFMoE with gates, windows and norms on both sides."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, QWEN_MOE_NAMES, layer_names
from day0.profile.families.family import Family
from day0.profile.profile import DenseFeedForward, GroupedQueryAttention, ModelEnds, OutputGate
from day0.profile.read_experts import ExpertLine, read_expert_line, routed_after
from day0.profile.read_feed_forward import read_dense
from day0.profile.read_gqa_variants import GqaLine, by_period, read_gqa_line, rotated_where_sliding


def _ungated(reader: ConfigReader, index: int) -> DenseFeedForward:
    """down(relu(up x)^2)."""
    return replace(read_dense(reader, index, bias_key="mlp_bias", silent="relu2"), gated=False)


def _period(reader: ConfigReader) -> int:
    return reader.integer("global_attn_every_n_layers", 4)


_KIND = by_period(_period)
_AFMOE = GqaLine(head_dim=128, qk_norm="head", kind=_KIND, window=1024, rotated=rotated_where_sliding(_KIND))


def _gated_attention(reader: ConfigReader, index: int) -> GroupedQueryAttention:
    return replace(read_gqa_line(reader, index, line=_AFMOE), output_gate=OutputGate())


def _ends(reader: ConfigReader) -> ModelEnds:
    scaled = reader.flag("mup_enabled", False)
    return ModelEnds(embedding_scale=reader.integer("hidden_size") ** 0.5 if scaled else 1.0)


ARCEE = Family(
    name="arcee",
    model_types=("arcee",),
    architectures=("ArceeForCausalLM",),
    native=True,
    read_mixer=partial(read_gqa_line, line=GqaLine()),
    read_feed_forward=_ungated,
    norm_eps_default=1e-5,
    names=LLAMA_NAMES,
)

AFMOE = Family(
    name="afmoe",
    model_types=("afmoe",),
    architectures=("AfmoeForCausalLM",),
    native=True,
    read_mixer=_gated_attention,
    read_feed_forward=partial(
        read_expert_line,
        line=ExpertLine(
            experts=("num_experts", "num_local_experts"),
            shared="num_shared_experts",
            shared_default=2,
            routed=routed_after(1, "num_dense_layers"),
            scoring="sigmoid",
            renormalize=True,
            correction_bias=True,
            scaling="route_scale",
        ),
    ),
    read_ends=_ends,
    norms=("mixer_norm", "mixer_post_norm", "ffn_norm", "ffn_post_norm"),
    norm_eps_default=1e-5,
    names={
        **LLAMA_NAMES,
        **QWEN_MOE_NAMES,
        **layer_names(
            {
                "mixer_post_norm.weight": "post_attention_layernorm.weight",
                "ffn_norm.weight": "pre_mlp_layernorm.weight",
                "ffn_post_norm.weight": "post_mlp_layernorm.weight",
                "mixer.g_proj.weight": "self_attn.gate_proj.weight",
                "ffn.router.weight": "mlp.router.gate.weight",
                "ffn.router.correction_bias": "mlp.expert_bias",
            }
        ),
    },
    # What `layer_types` says comes before the period; the others are of the training, or fixed by the architecture.
    inert=(
        "global_attn_every_n_layers",
        "load_balance_coeff",
        "score_func",
        "route_norm",
        "n_group",
        "topk_group",
        "num_expert_groups",
        "num_limited_groups",
        "use_grouped_mm",
    ),
)

ARCEES = (ARCEE, AFMOE)
