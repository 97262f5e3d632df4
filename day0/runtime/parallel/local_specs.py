"""One rank's layers: the same specs with as many heads, channels and experts' rows as a rank holds.

Blocks, cache planes and states follow from them. What cannot be cut is refused with its numbers and what would mend it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from day0.errors import CannotSay, InputError
from day0.profile.feed_forward import DenseFeedForward, FeedForward, NoFeedForward, RoutedExperts
from day0.profile.grouped_query import GroupedQueryAttention
from day0.profile.latent_attention import LatentAttention
from day0.profile.mixers import KimiDeltaAttention, Mixer, NoMixer
from day0.profile.mixers_convolved import ParallelMixers
from day0.profile.mixers_linear import GatedDeltaNet, LightningAttention, LinearMap, Mamba, Mamba2, ShortConvolution
from day0.profile.mixers_sparse import (
    BlockSparseAttention,
    CompressedSparseAttention,
    HeavilyCompressedAttention,
    SharedKeyValueAttention,
    SparseLatentAttention,
)
from day0.profile.profile import ArchitectureProfile, LayerSpec
from day0.runtime.parallel.layout import Layout


def local_layers(profile: ArchitectureProfile, layout: Layout) -> tuple[LayerSpec, ...]:
    """The layers as a rank of any stage holds them; raises InputError or CannotSay where one cannot be cut."""
    if layout.ep > 1 and not any(isinstance(layer.feed_forward, RoutedExperts) for layer in profile.layers):
        raise InputError(f"experts: ep {layout.ep}, but the model has no routed experts", where="--ep", hint="leave it")
    return tuple(
        replace(
            layer,
            mixer=local_mixer(layer.mixer, layout.tp),
            feed_forward=local_feed_forward(layer.feed_forward, layout),
        )
        for layer in profile.layers
    )


def stage_layers(profile: ArchitectureProfile, layout: Layout) -> tuple[range, ...]:
    """The layers of each stage: even shares, moved forwards where a layer reads what an earlier one left.

    Raises InputError where there are not as many places to part the model as stages need.
    """
    layers = profile.layers
    if layout.pp > 1 and profile.ends.per_layer is not None:
        raise InputError(
            f"pipeline: each of {len(layers)} layers reads an input of its own, which only the first stage makes",
            where="--pp",
            hint="--tp",
        )
    bounds = [0]
    for stage in range(1, layout.pp):
        wanted = max(len(layers) * stage // layout.pp, bounds[-1] + 1)
        place = next((n for n in range(wanted, len(layers)) if not _reads_back(layers, n)), None)
        if place is None:
            raise InputError(
                f"pipeline: {len(layers)} layers cannot be parted into {layout.pp} stages, as later layers read what "
                "earlier ones left",
                where="--pp",
                hint="fewer stages, or --tp",
            )
        bounds.append(place)
    return tuple(range(start, end) for start, end in zip(bounds, [*bounds[1:], len(layers)], strict=True))


def _reads_back(layers: Sequence[LayerSpec], first: int) -> bool:
    """Whether a layer from `first` on reads keys or a choice of tokens that a layer before it made."""
    choosing = False
    for number, layer in enumerate(layers[first:], start=first):
        mixer = layer.mixer
        if isinstance(mixer, GroupedQueryAttention) and mixer.cache_of is not None and mixer.cache_of < first <= number:
            return True
        if isinstance(mixer, SparseLatentAttention):
            if mixer.indexer is None and not choosing:
                return True
            choosing = True
    return False


def local_mixer(mixer: Mixer, ranks: int) -> Mixer:
    """A mixer with the heads or channels that each of `ranks` holds; key heads are repeated where they are fewer."""
    if ranks == 1 or is_whole(mixer):
        return mixer
    match mixer:
        case GroupedQueryAttention():
            heads = _part("gqa heads", mixer.num_heads, ranks)
            return replace(mixer, num_heads=heads, num_kv_heads=_kept("kv-heads", mixer.num_kv_heads, ranks))
        case LatentAttention():
            return _latent(mixer, ranks)
        case KimiDeltaAttention() | LightningAttention():
            return replace(mixer, num_heads=_part(f"{mixer.kind} heads", mixer.num_heads, ranks))
        case SparseLatentAttention():
            return replace(mixer, attention=_latent(mixer.attention, ranks))
        case BlockSparseAttention():
            return _block_sparse(mixer, ranks)
        case SharedKeyValueAttention():
            return _shared(mixer, ranks)
        case HeavilyCompressedAttention() | CompressedSparseAttention():
            return replace(mixer, attention=_shared(mixer.attention, ranks))
        case GatedDeltaNet():
            keys = _part("gated_deltanet key heads", mixer.num_key_heads, ranks)
            return replace(mixer, num_key_heads=keys, num_value_heads=mixer.num_value_heads // ranks)
        case Mamba() | ShortConvolution():
            return replace(mixer, width=_part(f"{mixer.kind} channels", mixer.width, ranks))
        case Mamba2():
            return _state_space(mixer, ranks)
        case ParallelMixers():
            attention, state_space = local_mixer(mixer.attention, ranks), _state_space(mixer.state_space, ranks)
            assert isinstance(attention, GroupedQueryAttention)
            return replace(mixer, attention=attention, state_space=state_space)
    raise CannotSay(
        f"mixer {mixer.kind}: how it is cut between ranks is not written down",
        where="--tp",
        hint="--pp shares its layers out whole",
    )


def is_whole(part: Mixer | FeedForward) -> bool:
    """Whether every rank holds and computes all of a branch."""
    return isinstance(part, LinearMap | NoMixer | NoFeedForward)


def local_feed_forward(spec: FeedForward, layout: Layout) -> FeedForward:
    """A feed-forward with the channels that a rank holds. Routers, and how many experts they know, stay whole."""
    match spec:
        case DenseFeedForward():
            return replace(spec, width=_part("dense MLP channels", spec.width, layout.tp))
        case RoutedExperts():
            parallel = spec.parallel
            if parallel is not None:
                parallel = replace(parallel, width=_part("dense MLP channels", parallel.width, layout.tp))
            return replace(
                spec,
                width=_part("expert channels", spec.width, layout.expert_tp, "--ep deals experts out whole"),
                shared_width=_part("shared expert channels", spec.shared_width, layout.tp),
                parallel=parallel,
            )
    return spec


def _latent(mixer: LatentAttention, ranks: int) -> LatentAttention:
    return replace(mixer, num_heads=_part(f"{mixer.kind} heads", mixer.num_heads, ranks))


def _shared(mixer: SharedKeyValueAttention, ranks: int) -> SharedKeyValueAttention:
    groups = _part("output groups", mixer.o_groups, ranks)
    return replace(mixer, num_heads=_part(f"{mixer.kind} heads", mixer.num_heads, ranks), o_groups=groups)


def _block_sparse(mixer: BlockSparseAttention, ranks: int) -> BlockSparseAttention:
    """Index heads go with the key/value heads they choose for; several ranks keep one where they are fewer."""
    attention = local_mixer(mixer.attention, ranks)
    assert isinstance(attention, GroupedQueryAttention)
    index_heads = _kept("index-heads", mixer.indexer.num_heads, ranks)
    return replace(mixer, attention=attention, indexer=replace(mixer.indexer, num_heads=index_heads))


def _state_space(mixer: Mamba2, ranks: int) -> Mamba2:
    heads = _part("mamba2 heads", mixer.num_heads, ranks)
    groups = _kept("state-groups", mixer.num_groups, ranks)
    if mixer.norm and mixer.num_groups % ranks:
        raise InputError(
            f"state-groups: the output norm of {mixer.num_groups} groups would lie across {ranks} ranks",
            where="--tp",
            hint=f"tp of {_divisors(mixer.num_groups, ranks)}",
        )
    return replace(mixer, num_heads=heads, num_groups=groups)


def _part(what: str, count: int, ranks: int, otherwise: str = "--pp shares layers out whole") -> int:
    """A rank's share of what must be cut evenly."""
    if count % ranks:
        raise InputError(
            f"{what.replace(' ', '-')}: {count} {what} do not divide by {ranks} ranks",
            where="--tp",
            hint=f"tp of {_divisors(count, ranks)}; {otherwise}",
        )
    return count // ranks


def _kept(rule: str, count: int, ranks: int) -> int:
    """A rank's share of what several ranks may hold the same of, where there are more ranks."""
    if count % ranks and ranks % count:
        raise InputError(
            f"{rule}: {count} neither divide by {ranks} ranks nor divide them",
            where="--tp",
            hint=f"tp that divides {count} or is a multiple of it",
        )
    return max(1, count // ranks)


def _divisors(count: int, most: int) -> str:
    return ", ".join(str(n) for n in range(1, max(most, 8) + 1) if count % n == 0)
