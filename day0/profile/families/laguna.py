"""Laguna: query heads by layer, softplus gates on the attention output, experts chosen by sigmoid and bias."""

from __future__ import annotations

from dataclasses import replace

from day0.errors import InputError
from day0.profile.config_reader import ConfigReader
from day0.profile.families.decoder_names import LLAMA_NAMES, MLP_LEAVES, QWEN_MOE_NAMES, layer_names, under
from day0.profile.families.family import Family
from day0.profile.profile import FeedForward, GroupedQueryAttention, OutputGate, RoutedExperts
from day0.profile.read_experts import ExpertLine, read_expert_line, routed_after, routed_by_words
from day0.profile.read_gqa_variants import GqaLine, LayerKind, by_period, check_groups, layer_value, read_gqa_line
from day0.profile.read_positions import read_rope

_LINE = GqaLine(kv_heads=8, head_dim=128, qk_norm="head", kind=by_period(0), window=512, ropes_by_kind=True)
_ROPES: dict[LayerKind, tuple[float, float]] = {"full_attention": (5e5, 0.5), "sliding_attention": (1e4, 1.0)}
"""Base and rotated share of a head by kind of layer, where the config has no rotary section."""

_EXPERTS = ExpertLine(
    experts=("num_experts", "num_local_experts"),
    shared="shared_expert_intermediate_size",
    shared_default=512,
    shared_is_width=True,
    routed=routed_by_words(routed_after(1)),
    scoring="sigmoid",
    renormalize=True,
    correction_bias=True,
    scaling="moe_routed_scaling_factor",
)


def _attention(reader: ConfigReader, index: int) -> GroupedQueryAttention:
    spec = read_gqa_line(reader, index, line=_LINE)
    heads = layer_value(reader, "num_attention_heads_per_layer", index, spec.num_heads)
    check_groups(reader, heads, spec.num_kv_heads)
    kind: LayerKind = "full_attention" if spec.window is None else "sliding_attention"
    theta, fraction = _ROPES[kind]
    rope = read_rope(reader, spec.head_dim, theta=theta, kind=kind, fraction=fraction)
    return replace(spec, num_heads=heads, rope=rope, output_gate=_gate(reader))


def _gate(reader: ConfigReader) -> OutputGate:
    """`gating`: true or "per-head" is one factor a head, "per-element" one a channel."""
    value = reader.values.get("gating", True)
    if value is True or value is None:
        reader.ignore("gating")
        return OutputGate("head", "softplus")
    per = reader.choice("gating", {"per-head": "head", "per-element": "channel"})
    return OutputGate("head" if per == "head" else "channel", "softplus")


def _feed_forward(reader: ConfigReader, index: int) -> FeedForward:
    if reader.flag("moe_apply_router_weight_on_input", False):
        raise InputError("is not known for this family", where=reader.where("moe_apply_router_weight_on_input"))
    softcap = reader.number("moe_router_logit_softcapping", 0.0) or None
    spec = read_expert_line(reader, index, line=_EXPERTS)
    if not isinstance(spec, RoutedExperts):
        return spec
    return replace(spec, router=replace(spec.router, logit_softcap=softcap))


LAGUNA = Family(
    name="laguna",
    model_types=("laguna",),
    architectures=("LagunaForCausalLM",),
    native=True,
    read_mixer=_attention,
    read_feed_forward=_feed_forward,
    names={
        **LLAMA_NAMES,
        **QWEN_MOE_NAMES,
        **layer_names(
            {
                "mixer.g_proj.weight": "self_attn.g_proj.weight",
                "ffn.router.correction_bias": "mlp.experts.e_score_correction_bias",
            }
        ),
        **under("layers.{l}.ffn.shared", "model.layers.{l}.mlp.shared_expert", MLP_LEAVES),
    },
)
