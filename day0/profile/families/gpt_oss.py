"""gpt-oss: windows in every other layer, sinks and biases, experts stacked in MXFP4."""

from __future__ import annotations

from dataclasses import replace

from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, STACKED_NAMES, layer_names
from day0.profile.families.family import Family
from day0.profile.profile import ActivationSpec, GroupedQueryAttention, RoutedExperts
from day0.profile.read_experts import ExpertLine, read_router
from day0.profile.read_gqa_variants import GqaLine, by_period, read_gqa_line
from day0.profile.storage import Storage

_LINE = GqaLine(kv_heads=8, head_dim=64, theta=150000.0, bias=True, kind=by_period(2), window=128)
_EXPERTS = ExpertLine(experts=("num_local_experts", "num_experts"), renormalize=True)


def _attention(reader: ConfigReader, index: int) -> GroupedQueryAttention:
    return replace(read_gqa_line(reader, index, line=_LINE), sinks=True)


def _experts(reader: ConfigReader, index: int) -> RoutedExperts:
    """Softmax over the chosen logits, which equals softmax over all followed by renormalisation; biases throughout."""
    del index
    return RoutedExperts(
        router=replace(read_router(reader, _EXPERTS), bias=True),
        width=reader.integer("intermediate_size"),
        activation=ActivationSpec(
            "swiglu_oai", alpha=reader.number("swiglu_alpha", 1.702), limit=reader.number("swiglu_limit", 7.0)
        ),
        bias=True,
    )


GPT_OSS = Family(
    name="gpt_oss",
    model_types=("gpt_oss",),
    architectures=("GptOssForCausalLM",),
    native=True,
    read_mixer=_attention,
    read_feed_forward=_experts,
    norm_eps_default=1e-5,
    names={
        **LLAMA_NAMES,
        **STACKED_NAMES,
        **layer_names(
            {
                "mixer.sinks": "self_attn.sinks",
                "ffn.router.weight": "mlp.router.weight",
                "ffn.router.bias": "mlp.router.bias",
            }
        ),
    },
    # Gate and up are rows of one tensor by turns.
    storage=Storage(
        joined={"ffn.experts.gate_up": ("ffn.experts.gate", "ffn.experts.up")},
        by_turns=("ffn.experts.gate_up",),
        stacked_experts=True,
        input_first=True,
    ),
    quantized=("routed_experts",),
    # The gate is fixed whatever hidden_act says; the other two repeat num_experts_per_tok and the rope section.
    inert=("hidden_act", "experts_per_token", "initial_context_length"),
)
