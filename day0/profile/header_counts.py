"""Parameters counted from headers alone, for checkpoints whose names no family explains: packing is read from names,
dtypes and neighbours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

from day0.profile.parameters import GROUPS
from day0.profile.tensor_patterns import TensorPattern

_BITS_OF_INT32 = 32
_NOT_PARAMETERS = re.compile(
    r"(.*_scale(_inv|_2)?|.*_scales|scales?|.*zero_point|qzeros|g_idx|.*_g_idx|weight_shape|inv_freq|perm"
    r"|.*position_ids|num_batches_tracked)"
)
"""Leaves that hold scales, zero points, orders and buffers."""
_FOUR_BIT_LEAVES = (".weight_packed", "_blocks", "_packed")
_SCALES = ("weight_scale", "weight_scale_inv", "scale", "weight_scales")
_GROUP_OF = (
    ("mtp", r"(^|\.)(mtp|nextn|eagle)\w*(\.|$)"),
    ("audio", r"(^|\.)(audio|speech|whisper)\w*(\.|$)"),
    ("vision", r"(^|\.)(vision|visual|vit|image|vpm|patch_embed|mm_|multi_modal|projector)\w*"),
    ("lm_head", r"(^|\.)(lm_head|head|output|embed_out)\.\w+$"),
    ("embed", r"(^|\.)(embed_tokens|embed|wte|tok_embeddings|word_embeddings|embeddings)(\.\w+)?$"),
    ("router", r"(router|\.gate\.(weight|bias|e_score)|\.wg\.|correction_bias|expert_bias)"),
    ("shared_experts", r"shared_(expert|mlp)"),
    ("routed_experts", r"experts?\b|block_sparse_moe"),
    ("attention", r"attn\.\w*norm"),
    ("norm", r"(norm|ln_\w+|layernorm|ln\d?)\.(weight|bias)$"),
    ("indexer", r"indexer"),
    ("linear_mixer", r"(linear_attn|mamba|ssm|\.conv\b|conv1d|\.A_log|dt_bias|delta|retention)"),
    ("attention", r"(attn|attention)"),
    ("dense_mlp", r"(mlp|ffn|feed_forward|\.ff\b|fc\d|\.w[123]\b)"),
)
"""Groups of parameters by what publishers tend to call them; the first that matches counts."""
_RULES = tuple((group, re.compile(expression)) for group, expression in _GROUP_OF)


def count_elements(
    patterns: Sequence[TensorPattern], *, int_bits: int = 4, leave_out: Iterable[str] = ()
) -> dict[str, int]:
    """Parameters by group; what no word gives away is "other". `leave_out` are patterns that count nowhere.

    `int_bits` is the width of the integers in packed int32 words, which no header tells.
    """
    names = {pattern.pattern for pattern in patterns}
    skipped = set(leave_out)
    groups = dict.fromkeys(GROUPS, 0)
    for pattern in patterns:
        if pattern.pattern not in skipped:
            groups[group_of(pattern.pattern)] += parameters_of(pattern, names, int_bits=int_bits)
    return groups


def group_of(pattern: str) -> str:
    return next((group for group, rule in _RULES if rule.search(pattern)), "other")


def parameters_of(pattern: TensorPattern, names: Iterable[str], *, int_bits: int = 4) -> int:
    """Model parameters that the tensors of one pattern hold; none for scales and their like."""
    return pattern.tensors * prod(pattern.shape) * _values_each(pattern, names, int_bits)


def _values_each(pattern: TensorPattern, names: Iterable[str], int_bits: int) -> int:
    """Numbers in one stored element."""
    leaf, stem = pattern.leaf, pattern.pattern.rpartition(".")[0]
    if leaf == "bias":
        return 1
    scales = {f"{stem}.{scale}" for scale in _SCALES}.intersection(names)
    if _NOT_PARAMETERS.fullmatch(leaf):
        # A lone "scale" may be a learnt factor; beside packed numbers it belongs to them.
        alone = leaf == "scale" and f"{stem}.weight" not in names
        return 1 if alone else 0
    if pattern.dtype == "U8" and (pattern.pattern.endswith(_FOUR_BIT_LEAVES) or (leaf == "weight" and scales)):
        return 2
    if pattern.dtype == "I8" and leaf == "weight" and f"{stem}.scale" in scales:
        return 2  # four-bit codes in signed bytes (DeepSeek-V4)
    if pattern.dtype in ("I32", "U32") and (leaf == "qweight" or leaf.endswith("_packed")):
        return _BITS_OF_INT32 // int_bits
    if pattern.dtype == "F4":
        return 1
    return 0 if pattern.dtype in ("BOOL", "I64", "U64") else 1


def int_bits(config: Mapping[str, Any]) -> int:
    """The width of packed integers as a quantisation section gives it anywhere inside, 4 where it does not."""
    pending: list[Any] = [config.get("quantization_config"), config.get("text_config")]
    while pending:
        value = pending.pop()
        if not isinstance(value, Mapping):
            continue
        for key in ("bits", "num_bits", "w_bit"):
            bits = value.get(key)
            if isinstance(bits, int) and not isinstance(bits, bool) and bits in (2, 3, 4, 8):
                return bits
        pending.extend(value.values())
    return 4
