"""Checkpoint names shared by the Llama line of decoders; family tables build on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

ATTENTION_LEAVES = (
    "q_proj.weight",
    "k_proj.weight",
    "v_proj.weight",
    "o_proj.weight",
    "q_proj.bias",
    "k_proj.bias",
    "v_proj.bias",
    "o_proj.bias",
    "q_norm.weight",
    "k_norm.weight",
)
MLP_LEAVES = tuple(f"{name}_proj.{leaf}" for name in ("gate", "up", "down") for leaf in ("weight", "bias"))


def under(ours: str, theirs: str, leaves: Iterable[str]) -> dict[str, str]:
    """Names that differ only in the module they stand under."""
    return {f"{ours}.{leaf}": f"{theirs}.{leaf}" for leaf in leaves}


def experts(theirs: str, spelling: Mapping[str, str]) -> dict[str, str]:
    """Names of per-expert projections: `spelling` maps gate, up and down to what the checkpoint calls them."""
    return {f"layers.{{l}}.ffn.experts.{ours}.weight": f"{theirs}.{name}.weight" for ours, name in spelling.items()}


LLAMA_NAMES: Mapping[str, str] = {
    "embed.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "lm_head.weight": "lm_head.weight",
    "layers.{l}.mixer_norm.weight": "model.layers.{l}.input_layernorm.weight",
    "layers.{l}.ffn_norm.weight": "model.layers.{l}.post_attention_layernorm.weight",
    **under("layers.{l}.mixer", "model.layers.{l}.self_attn", ATTENTION_LEAVES),
    **under("layers.{l}.ffn", "model.layers.{l}.mlp", MLP_LEAVES),
}


def inside(names: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Names of a decoder that stands under `prefix` instead of "model." in a larger model; its head stays outside."""
    return {
        ours: prefix + theirs.removeprefix("model.") if theirs.startswith("model.") else theirs
        for ours, theirs in names.items()
    }


def renamed(names: Mapping[str, str], spelling: Mapping[str, str]) -> dict[str, str]:
    """The same names with other words for some of their parts."""
    changed = dict(names)
    for ours, theirs in changed.items():
        for word, other in spelling.items():
            theirs = theirs.replace(word, other)
        changed[ours] = theirs
    return changed


def layer_names(spelling: Mapping[str, str], layer: str = "model.layers.{l}") -> dict[str, str]:
    """Names of tensors of a layer, by paths relative to it on both sides."""
    return {f"layers.{{l}}.{ours}": f"{layer}.{theirs}" for ours, theirs in spelling.items()}


def norm_names(spelling: Mapping[str, str], layer: str = "model.layers.{l}") -> dict[str, str]:
    """Names of the norms of a layer; `spelling` maps ours to theirs."""
    return layer_names(
        {f"{ours}.{leaf}": f"{theirs}.{leaf}" for ours, theirs in spelling.items() for leaf in ("weight", "bias")},
        layer,
    )


def predictor_names(names: Mapping[str, str], layer: str, joint: Mapping[str, str]) -> dict[str, str]:
    """Names of multi-token prediction: its layers are spelled as the decoder's, under `layer`; `joint` has the rest."""
    ordinary = {
        f"mtp.{ours}": theirs.replace("model.layers.{l}", layer)
        for ours, theirs in names.items()
        if ours.startswith("layers.{l}.")
    }
    return {**ordinary, **{f"mtp.layers.{{l}}.{ours}": f"{layer}.{theirs}" for ours, theirs in joint.items()}}


SANDWICH_NORMS: Mapping[str, str] = norm_names(
    {
        "mixer_norm": "input_layernorm",
        "mixer_post_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "ffn_post_norm": "post_feedforward_layernorm",
    }
)
"""Norms before and after each branch, as Gemma 2 names them."""

POST_NORMS: Mapping[str, str] = norm_names(
    {"mixer_post_norm": "post_attention_layernorm", "ffn_post_norm": "post_feedforward_layernorm"}
)
"""Norms after each branch only, as OLMo 2 names them."""

QWEN_MOE_NAMES: Mapping[str, str] = {
    **layer_names(
        {
            "ffn.router.weight": "mlp.gate.weight",
            "ffn.router.correction_bias": "mlp.gate.e_score_correction_bias",
            "ffn.shared_gate.weight": "mlp.shared_expert_gate.weight",
        }
    ),
    **experts("model.layers.{l}.mlp.experts.{expert}", {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}),
    **under("layers.{l}.ffn.shared", "model.layers.{l}.mlp.shared_experts", MLP_LEAVES),
}
"""Experts as Qwen2-MoE and DeepSeek-V3 name them; shared ones as DeepSeek-V3 does."""

STACKED_NAMES: Mapping[str, str] = layer_names(
    {
        f"ffn.experts.{ours}.{leaf}": f"mlp.experts.{theirs}{ending}"
        for ours, theirs in (("gate_up", "gate_up_proj"), ("down", "down_proj"))
        for leaf, ending in (("weight", ""), ("bias", "_bias"))
    }
)
"""Experts stacked in one tensor, gate and up joined."""
