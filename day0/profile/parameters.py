"""Parameter counts by group, active parameters, and bytes by stored format, from the expected tensors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from day0.profile.profile import ArchitectureProfile, RoutedExperts
from day0.profile.tensors import expected_tensors
from day0.source.model_files import TensorHeader

GROUPS = (
    "embed",
    "attention",
    "indexer",
    "linear_mixer",
    "dense_mlp",
    "routed_experts",
    "shared_experts",
    "latent_moe_proj",
    "router",
    "residual_mixing",
    "norm",
    "vision",
    "audio",
    "lm_head",
    "mtp",
    "other",
)
"""The groups of the command contract; they add up to the total, which leaves "mtp" out."""

_NOT_TEXT = ("vision", "audio", "mtp")


@dataclass(frozen=True, slots=True)
class ParameterCounts:
    """Parameters of a model. A tied head counts once, packed weights count as the numbers they stand for.

    `active` is what one text token uses: everything but vision and MTP, with `top_k` of the routed experts.
    `active_without_input_embedding` leaves the input table out, unless it is the output head too.
    """

    total: int
    active: int
    active_without_input_embedding: int
    groups: dict[str, int]


def count_parameters(profile: ArchitectureProfile) -> ParameterCounts:
    """Count from the expected tensors; raises CannotSay where those are unknown."""
    groups = dict.fromkeys(GROUPS, 0)
    idle = 0
    top_k = {layer.index: _used_share(layer.feed_forward) for layer in profile.layers}
    for spec in expected_tensors(profile):
        groups[spec.group] += spec.total_parameters
        if spec.num_experts and spec.layer is not None:
            idle += spec.total_parameters // spec.num_experts * (spec.num_experts - top_k[spec.layer])
    total = sum(count for group, count in groups.items() if group != "mtp")
    active = sum(count for group, count in groups.items() if group not in _NOT_TEXT) - idle
    input_table = 0 if profile.tie_word_embeddings else groups["embed"]
    return ParameterCounts(total, active, active - input_table, groups)


def _used_share(feed_forward: object) -> int:
    return feed_forward.router.top_k if isinstance(feed_forward, RoutedExperts) else 0


def weight_formats(profile: ArchitectureProfile) -> dict[str, int]:
    """Bytes by stored format; a packed weight and its scales count under the format's name ("mxfp4")."""
    formats: dict[str, int] = {}
    for spec in expected_tensors(profile):
        name = spec.format or spec.dtype.lower()
        formats[name] = formats.get(name, 0) + spec.nbytes
    return formats


def stored_formats(profile: ArchitectureProfile, tensors: Mapping[str, TensorHeader]) -> dict[str, int]:
    """Bytes by stored format as the headers have them; what the profile does not expect goes by its dtype."""
    by_dtype: dict[str, int] = defaultdict(int)
    for header in tensors.values():
        by_dtype[header.dtype] += header.end - header.begin
    specs = expected_tensors(profile) if profile.quantization is not None and profile.family is not None else ()
    named: dict[str, set[str]] = defaultdict(set)
    for spec in specs:
        named[spec.dtype].add(spec.format or spec.dtype.lower())
    formats: dict[str, int] = defaultdict(int)
    for dtype, nbytes in by_dtype.items():
        names = named.get(dtype, {dtype.lower()})
        formats[next(iter(names)) if len(names) == 1 else dtype.lower()] += nbytes
    # Where packed and plain tensors share a dtype (float32 scales, say), names tell them apart.
    for spec in specs:
        if spec.format and len(named[spec.dtype]) > 1:
            headers = [header for header in map(tensors.get, spec.names()) if header and header.dtype == spec.dtype]
            nbytes = sum(header.end - header.begin for header in headers)
            formats[spec.format] += nbytes
            formats[spec.dtype.lower()] -= nbytes
    return {name: nbytes for name, nbytes in formats.items() if nbytes}
