"""Bytes on one rank, a line each: what every engine's accounting starts from and what it must return.

The cache lines use `LayerSpec.cache_planes` and `state_shapes` and nothing else, as the runtime does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Protocol

from day0.plan.cluster import Gpu
from day0.plan.layout import Layout
from day0.plan.weights import RankWeights
from day0.plan.workload import Workload
from day0.profile.cache_sizes import plane_bytes, state_bytes
from day0.profile.packing import matrix_size
from day0.profile.profile import ArchitectureProfile, CachePlane, LayerSpec, Mixer, RoutedExperts
from day0.profile.tensors import packed_matrices

_DTYPE_WORDS = {"BF16": "bf16", "F16": "fp16", "F32": "fp32", "F64": "fp32"}


@dataclass(frozen=True, slots=True)
class PlaneCache:
    """One plane of a layer on one rank: bytes of an entry, which `stride` tokens share; the last `window` tokens only,
    if that is set. `index` marks an indexer's keys, `pending` what an engine keeps of entries not yet finished."""

    entry_bytes: int
    window: int | None = None
    stride: int = 1
    index: bool = False
    pending: bool = False

    def bytes_at(self, context: int) -> int:
        """Bytes of one sequence of `context` tokens; an entry that is not full yet is kept whole."""
        tokens = context if self.window is None else min(self.window, context)
        return -(-tokens // self.stride) * self.entry_bytes


@dataclass(frozen=True, slots=True)
class LayerCache:
    """What one layer keeps on one rank: planes of the paged cache, and bytes per sequence whatever its length."""

    planes: tuple[PlaneCache, ...]
    state_bytes: int = 0

    @property
    def full(self) -> tuple[PlaneCache, ...]:
        """Planes that grow with the sequence."""
        return tuple(plane for plane in self.planes if plane.window is None)

    @property
    def windowed(self) -> tuple[PlaneCache, ...]:
        return tuple(plane for plane in self.planes if plane.window is not None)

    @property
    def token_bytes(self) -> Fraction:
        """What one more token adds once every window is full."""
        return sum((Fraction(plane.entry_bytes, plane.stride) for plane in self.full), Fraction(0))

    @property
    def widest_bytes(self) -> Fraction:
        """What one more token adds while no window is full yet."""
        return sum((Fraction(plane.entry_bytes, plane.stride) for plane in self.planes), Fraction(0))

    def bytes_at(self, context: int) -> int:
        """Bytes of the planes of one sequence of `context` tokens."""
        return sum(plane.bytes_at(context) for plane in self.planes)


@dataclass(frozen=True, slots=True)
class RankCache:
    """The caches of a rank's layers. With `cp` > 1 a rank keeps every cp-th token only."""

    layers: tuple[LayerCache, ...]
    cp: int = 1

    @property
    def exact_token_bytes(self) -> Fraction:
        """Bytes of one cached token on the rank that keeps it, windows left out; compressed layers add fractions."""
        counts = Counter(self.layers)
        return sum((count * layer.token_bytes for layer, count in counts.items()), Fraction(0))

    @property
    def token_bytes(self) -> int:
        """The same in whole bytes, rounded up once."""
        return ceil(self.exact_token_bytes)

    @property
    def state_bytes(self) -> int:
        """Bytes per sequence, whatever its length."""
        return sum(layer.state_bytes for layer in self.layers)

    def window_bytes(self, context: int) -> int:
        """Bytes of windowed planes for a sequence of `context` tokens."""
        return sum(plane.bytes_at(context) for layer in self.layers for plane in layer.windowed)

    def sequence_bytes(self, context: int) -> int:
        """All that one sequence of `context` tokens keeps on this rank."""
        kept = -(-context // self.cp)
        counts = Counter(self.layers)
        growing = sum(count * plane.bytes_at(kept) for layer, count in counts.items() for plane in layer.full)
        return growing + self.window_bytes(context) + self.state_bytes


class CacheFormat(Protocol):
    """How an engine lays out its cache; every accounting is one."""

    def entry(self, mixer: Mixer, plane: CachePlane, kv_dtype: str) -> int: ...

    def extra_planes(self, mixer: Mixer) -> tuple[CachePlane, ...]: ...


def plain_entry(mixer: Mixer, plane: CachePlane, kv_dtype: str) -> int:
    """An entry as its elements and nothing else."""
    del mixer
    return plane_bytes(plane, kv_dtype)


def layer_cache(
    layer: LayerSpec, attention_tp: int, kv_dtype: str, model_dtype: str, form: CacheFormat | None = None
) -> LayerCache:
    """One layer's cache on one of `attention_tp` ranks, plain where no engine's `form` is given.

    A plane or state with a head axis is cut there; heads fewer than ranks are kept once by each rank.
    """
    entry = form.entry if form is not None else plain_entry
    planes = [
        PlaneCache(
            _share(entry(layer.mixer, plane, kv_dtype), plane.shape, plane.head_axis, attention_tp),
            plane.window,
            plane.stride,
            plane.index,
        )
        for plane in layer.cache_planes()
    ]
    if form is not None:  # what engines add is float32 working state
        planes += [
            PlaneCache(4 * plane.elements, plane.window, pending=True) for plane in form.extra_planes(layer.mixer)
        ]
    states = layer.state_shapes()
    fixed = sum(_share(state_bytes(state, model_dtype), state.shape, state.head_axis, attention_tp) for state in states)
    return LayerCache(tuple(planes), fixed)


def _share(nbytes: int, shape: tuple[int, ...], head_axis: int | None, cut: int) -> int:
    if head_axis is None:
        return nbytes
    heads = shape[head_axis]
    return -(-nbytes * -(-heads // cut) // heads)


def rank_cache(
    profile: ArchitectureProfile,
    layers: Sequence[LayerSpec],
    layout: Layout,
    kv_dtype: str,
    form: CacheFormat | None = None,
) -> RankCache:
    """The caches of `layers` on one rank; `kv_dtype` "auto" follows the model."""
    model_dtype = dtype_word(profile)
    word = model_dtype if kv_dtype == "auto" else kv_dtype
    known: dict[object, LayerCache] = {}
    caches = []
    for layer in layers:
        key = (layer.mixer, layer.convolution)
        if key not in known:
            known[key] = layer_cache(layer, layout.attention_tp, word, model_dtype, form)
        caches.append(known[key])
    return RankCache(tuple(caches), layout.cp)


def dtype_word(profile: ArchitectureProfile) -> str:
    """The checkpoint's main dtype in the words of cache dtypes."""
    return _DTYPE_WORDS[profile.dtype]


def conversion_workspace(
    profile: ArchitectureProfile, layers: Sequence[LayerSpec], experts: int, layout: Layout, *, streamed: bool = False
) -> int:
    """Bytes of the room that packed matrices are turned back in, in the model's dtype; 0 where none are packed.

    It serves all layers in turn, so it is as large as the largest of what is turned back at once: one matrix, or
    `experts` of those that a rank has. `streamed` experts pass through it even where they are not packed.
    """
    largest = 0
    kinds = {replace(layer, index=0): layer for layer in layers}  # layers that are the same need one look
    for layer in (None, *kinds.values()):
        routed = layer.feed_forward if layer is not None and isinstance(layer.feed_forward, RoutedExperts) else None
        packed = [spec for spec, _ in packed_matrices(profile, layer)] if profile.quantization is not None else []
        if routed is not None and (streamed or any(spec.num_experts for spec in packed)):
            count = min(experts, -(-routed.router.num_experts // layout.ep))
            largest = max(largest, count * expert_numbers(routed, profile.hidden_size, layout.expert_tp))
        for spec in packed:
            if not spec.num_experts:
                rows, columns = matrix_size(spec)
                rows = max((part for _, part in spec.parts), default=rows)  # projections stored as one are apart here
                largest = max(largest, -(-rows * columns // (1 if spec.shard_axis is None else layout.attention_tp)))
    return largest * element_size(profile)


def expert_numbers(spec: RoutedExperts, hidden: int, slices: int) -> int:
    """Numbers of one expert's matrices on one of `slices` ranks: up, down, and gate where there is one."""
    return (3 if spec.gated else 2) * -(-spec.width // slices) * (spec.latent_dim or hidden)


def element_size(profile: ArchitectureProfile) -> int:
    """Bytes of one activation: the checkpoint's main dtype."""
    return {"fp32": 4}.get(dtype_word(profile), 2)


@dataclass(frozen=True, slots=True)
class RankNeed:
    """All that is known of a rank before an engine divides its memory."""

    profile: ArchitectureProfile
    layout: Layout
    gpu: Gpu
    workload: Workload
    layers: tuple[LayerSpec, ...]
    weights: RankWeights
    cache: RankCache
    is_first: bool
    is_last: bool

    @property
    def sequences(self) -> int:
        """Requests this rank's replica holds at once."""
        return self.workload.sequences(self.layout.dp)


def blocks_for(tokens: int, block_tokens: int) -> int:
    """Blocks that hold so many tokens of one sequence."""
    return -(-tokens // block_tokens)


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a rank's pools hold, as its engine divides them.

    A sequence takes `groups` blocks for each `block_tokens` tokens and `fixed_blocks` besides, and one of `slots`
    where state has a pool of its own. `blocks` None: nothing is cached per token. `slots` None: no limit of that kind.
    """

    blocks: int | None
    block_tokens: int
    fixed_blocks: int = 0
    slots: int | None = None
    groups: int = 1

    def sequences(self, context: int) -> float:
        """Sequences of `context` tokens held at once; a share of one where not even one is held."""
        limits = [] if self.slots is None else [float(self.slots)]
        if self.blocks is not None:
            taken = self.groups * blocks_for(context, self.block_tokens) + self.fixed_blocks
            limits.append(self.blocks / taken)
        return min(limits, default=float("inf"))

    def context(self, sequences: int) -> int | None:
        """The longest context of which `sequences` are held at once; None where length costs nothing."""
        if self.slots is not None and sequences > self.slots:
            return 0
        if self.blocks is None:
            return None
        left = self.blocks // sequences - self.fixed_blocks
        if left < 0 or not self.groups:
            return 0 if left < 0 else None
        return left // self.groups * self.block_tokens

    def tokens(self, context: int) -> int | None:
        """Tokens held, in sequences of `context` where a sequence has a fixed part as well."""
        if self.blocks is None:
            return None
        if self.fixed_blocks or not self.groups:
            return int(self.sequences(context) * context)
        return self.blocks // self.groups * self.block_tokens


@dataclass(frozen=True, slots=True)
class Settings:
    """What the engine must be told for the accounting to hold: the share of the GPU, requests a replica may run at
    once, tokens of one step; `state_slots` where the engine's own share of state would not do."""

    mem_fraction: float
    max_num_seqs: int
    max_batched_tokens: int
    state_slots: int | None = None


@dataclass(frozen=True, slots=True)
class Risk:
    """Bytes that a rank may take beside its lines; `in_pool` ones come out of the cache's pool, others of `free`."""

    what: str
    nbytes: int
    in_pool: bool
    remedy: str


@dataclass(frozen=True, slots=True)
class Budget:
    """How an engine divides a GPU of `total` bytes; `free` is what no line claims, below 0 where it is too small.

    `weights` may hold more than is stored (padding, copies an engine derives at load). `risks` are what the engine may
    take beside its lines, all at once; `least` is the capacity that those in the pool leave, where there are any.
    """

    total: int
    weights: int
    workspace: int
    activations: int
    state_pool: int
    kv_pool: int
    comm: int
    overhead: int
    capacity: Capacity
    settings: Settings
    risks: tuple[Risk, ...] = ()
    least: Capacity | None = None

    @property
    def sure(self) -> Capacity:
        """What the pool holds whatever comes true."""
        return self.capacity if self.least is None else self.least

    @property
    def claimed(self) -> int:
        return (
            self.weights
            + self.workspace
            + self.activations
            + self.state_pool
            + self.kv_pool
            + self.comm
            + self.overhead
        )

    @property
    def free(self) -> int:
        return self.total - self.claimed
