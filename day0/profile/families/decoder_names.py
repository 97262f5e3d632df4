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
