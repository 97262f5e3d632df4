"""Tensor headers against each other: heads, layers, experts, packed numbers and their scales."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from day0.errors import Finding
from day0.profile.feed_forward import RoutedExperts
from day0.profile.profile import ArchitectureProfile
from day0.profile.sketch import sketch
from day0.profile.tensors import TensorComparison
from day0.source.model_files import ModelFiles, TensorHeader

_HEADS = ("lm_head.weight", "language_model.lm_head.weight")
_EXPERT = re.compile(r"layers\.(\d+)\..*?experts\.(\d+)\.")
_PACKED = (
    ("weight_packed", ("weight_scale",)),
    ("weight_blocks", ("weight_scales",)),
    ("qweight", ("scales",)),
    ("gate_up_proj_blocks", ("gate_up_proj_scales",)),
    ("down_proj_blocks", ("down_proj_scales",)),
)
_FLOAT8_SCALES = ("weight_scale_inv", "weight_scale", "scale", "weight_scales")
_SCALES = ("weight_scale_inv", "weight_scale")
_NARROW = ("BF16", "F16")
_SHOWN = 3


def audit_tensors(
    files: ModelFiles, profile: ArchitectureProfile, comparison: TensorComparison | None
) -> Iterator[Finding]:
    """Looks only where the comparison with the profile left something open: a sound checkpoint has had each tensor
    compared with what its family stores."""
    if files.tensors is None or (comparison is not None and comparison.sound):
        return
    if comparison is not None:
        yield from _missing_head(files, profile, comparison)
        yield from sketch(files).findings
        yield from _expert_counts(profile, files.tensors)
    yield from _scales(files.tensors)


def _missing_head(files: ModelFiles, profile: ArchitectureProfile, comparison: TensorComparison) -> Iterator[Finding]:
    heads = [name for name in comparison.missing if name in _HEADS]
    if heads and not profile.tie_word_embeddings:
        text = "the config says that the head is a table of its own, and no shard holds it"
        hint = "either the embeddings are tied and the flag is wrong, or the model was exported without its head"
        yield Finding("head-missing", "error", f"{files.config_name}: tie_word_embeddings", text, hint)


def _expert_counts(profile: ArchitectureProfile, tensors: Iterable[str]) -> Iterator[Finding]:
    """The experts stored one by one against the number that the config gives."""
    seen: dict[int, set[int]] = defaultdict(set)
    for layer, expert in _EXPERT.findall("\n".join(tensors)):
        seen[int(layer)].add(int(expert))
    wrong = [
        (layer.index, layer.feed_forward.router.num_experts, len(seen[layer.index]))
        for layer in profile.layers
        if isinstance(layer.feed_forward, RoutedExperts)
        and layer.index in seen
        and len(seen[layer.index]) != layer.feed_forward.router.num_experts
    ]
    if wrong:
        layer, said, found = wrong[0]
        text = f"layer {layer} stores {found} experts, the config says {said} ({len(wrong)} layers differ)"
        yield Finding("expert-count", "error", "tensors", text, "experts were pruned, or a shard is another model's")


def _scales(tensors: Mapping[str, TensorHeader]) -> Iterator[Finding]:
    """Packed numbers without scales, and scales without numbers."""
    bare: list[str] = []
    idle: list[str] = []
    for name, header in tensors.items():
        stem, _, leaf = name.rpartition(".")
        if leaf == "weight" and header.dtype.startswith("F8_E") and header.dtype != "F8_E8M0":
            wanted: tuple[str, ...] = _FLOAT8_SCALES
        else:
            wanted = next((scales for packed, scales in _PACKED if leaf == packed), ())
        if wanted and not any(f"{stem}.{scale}" in tensors for scale in wanted):
            bare.append(name)
        elif leaf in _SCALES:
            owners = [f"{stem}.{owner}" for owner in ("weight", "weight_packed", "qweight")]
            stored = [tensors[owner] for owner in owners if owner in tensors]
            if all(owner.dtype in ("BF16", "F16", "F32") for owner in stored):
                idle.append(name)
    if bare:
        text = f"{len(bare):,} packed weights have no scale: {_some(bare)}"
        yield Finding("scale-missing", "error", bare[0], text, "they would be read as numbers of quite another size")
    if idle:
        text = f"{len(idle):,} scales belong to no packed weight: {_some(idle)}"
        yield Finding("scale-without-weight", "warning", idle[0], text, "left over from another packing?")


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
