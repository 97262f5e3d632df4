"""Which rows or columns of every parameter a rank holds, from what the profile says of cutting it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from day0.profile.draft import Draft
from day0.profile.feed_forward import FeedForward
from day0.profile.grouped_query import GroupedQueryAttention
from day0.profile.layer_tensors import layer_drafts
from day0.profile.mixers import KimiDeltaAttention, Mixer
from day0.profile.mixers_convolved import ParallelMixers
from day0.profile.mixers_linear import LightningAttention, Mamba, Mamba2, ShortConvolution
from day0.profile.mixers_sparse import BlockSparseAttention
from day0.profile.profile import ArchitectureProfile, LayerSpec
from day0.runtime.parallel.layout import Layout, Place, even_share
from day0.runtime.parallel.local_specs import is_whole


@dataclass(frozen=True, slots=True)
class Cut:
    """The pieces of `size` entries along `axis` of a plain parameter (of one expert's) that a rank holds, in order.

    `dims` is how many axes the parameter has. `pieces` None is a parameter that counts once among the ranks that add up
    their results, and is zero elsewhere.
    """

    axis: int = 0
    size: int = 0
    dims: int = 1
    pieces: tuple[range, ...] | None = None


ONCE_ELSEWHERE = Cut()
"""The bias of a product whose columns are cut, on all ranks but the first of those that share it."""

Section = tuple[int, int]
"""Channels that are cut on their own within a parameter, and the heads or groups they are cut between."""


def parameter_cuts(profile: ArchitectureProfile, layout: Layout, place: Place) -> dict[str, Cut]:
    """By parameter path, what this rank holds of all that is cut; parameters that are not here are held whole."""
    rows = even_share(profile.vocab_size + profile.ends.extra_rows, layout.tp, place.slice)
    logits = even_share(profile.vocab_size, layout.tp, place.slice)
    cuts: dict[str, Cut] = {}
    if layout.tp > 1:
        cuts["embed.weight"] = Cut(0, profile.vocab_size + profile.ends.extra_rows, 2, (rows,))
        for leaf, dims in (("weight", 2), ("bias", 1)):
            cuts[f"lm_head.{leaf}"] = Cut(0, profile.vocab_size, dims, (logits,))
    for layer in profile.layers:
        for path, cut in _layer_cuts(profile, layer, layout, place):
            cuts[f"layers.{layer.index}.{path}"] = cut
    return cuts


def _layer_cuts(
    profile: ArchitectureProfile, layer: LayerSpec, layout: Layout, place: Place
) -> Iterator[tuple[str, Cut]]:
    drafts = [draft for draft in layer_drafts(profile, layer) if not is_whole(_branch(layer, draft))]
    by_columns = {draft.path.removesuffix(".weight") for draft in drafts if draft.shard_axis == 1}
    for draft in drafts:
        ranks, rank = (layout.tp, place.slice)
        if draft.experts:
            ranks, rank = (layout.expert_tp, place.expert_slice)
        if ranks == 1:
            continue
        if draft.path.removesuffix(".bias") in by_columns:
            if rank:
                yield draft.path, ONCE_ELSEWHERE
            continue
        axis, sections = _sections(draft, layer)
        if axis is not None:
            size = sum(channels for channels, _ in sections)
            yield draft.path, Cut(axis, size, len(draft.shape), _pieces(sections, ranks, rank))


def _branch(layer: LayerSpec, draft: Draft) -> Mixer | FeedForward:
    return layer.feed_forward if draft.path.startswith("ffn.") else layer.mixer


def _pieces(sections: tuple[Section, ...], ranks: int, rank: int) -> tuple[range, ...]:
    """A rank's share of each section, in whole heads or groups; where those are fewer than ranks, the one it needs."""
    starts = [0]
    for channels, _ in sections:
        starts.append(starts[-1] + channels)
    pieces = []
    for (start, end), (_, units) in zip(pairwise(starts), sections, strict=True):
        own = even_share(units, ranks, rank)
        if units < ranks:
            own = range(rank * units // ranks, rank * units // ranks + 1)
        each = (end - start) // units
        pieces.append(range(start + own.start * each, start + own.stop * each))
    return tuple(pieces)


def _sections(draft: Draft, layer: LayerSpec) -> tuple[int | None, tuple[Section, ...]]:
    """The axis along which a parameter is cut and what lies there; None for one that every rank holds."""
    axis = draft.shard_axis
    mixer: Mixer = layer.mixer
    name = draft.path.removeprefix("mixer.")
    if isinstance(mixer, ParallelMixers):
        part, _, name = name.partition(".")
        mixer = mixer.attention if part == "attention" else mixer.state_space
    if isinstance(mixer, BlockSparseAttention):
        mixer = mixer.attention
    stem = name.partition(".")[0]
    if draft.path.startswith("mixer."):
        match mixer:
            case KimiDeltaAttention() if stem == "A_log" and axis is None:
                return 0, ((mixer.num_heads, mixer.num_heads),)  # padded with rows that nobody reads
            case GroupedQueryAttention() if stem in ("k_proj", "v_proj", "k_norm") and axis is not None:
                return axis, ((draft.shape[axis], mixer.num_kv_heads),)
            case LightningAttention() if stem == "o_norm":
                return axis, ((mixer.width, mixer.num_heads),)
            case Mamba() if stem == "in_proj":
                return axis, ((mixer.width, mixer.width),) * 2
            case ShortConvolution() if stem == "in_proj":
                return axis, ((mixer.width, mixer.width),) * 3
            case Mamba2() if stem in ("in_proj", "conv"):
                return axis, _state_space_sections(mixer, whole=stem == "in_proj")
            case Mamba2() if axis is not None:
                return axis, ((draft.shape[axis], mixer.num_heads),)
    return axis, () if axis is None else ((draft.shape[axis], draft.shard_units),)


def _state_space_sections(spec: Mamba2, *, whole: bool) -> tuple[Section, ...]:
    """x, B and C, as the convolution has them; the input projection has the gate before them and step sizes after."""
    inputs, shared = (spec.width, spec.num_heads), (spec.num_groups * spec.state_size, spec.num_groups)
    convolved = (inputs, shared, shared)
    return (inputs, *convolved, (spec.num_heads, spec.num_heads)) if whole else convolved
