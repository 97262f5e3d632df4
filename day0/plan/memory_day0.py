"""How day0's own runtime divides a GPU: stored weights, one conversion workspace, state slots, pages; no graphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from day0.plan.activations import forward_peak, logits_peak, stored_attention_bytes
from day0.plan.cluster import GIB, Cluster, Gpu
from day0.plan.layout import Layout, LayoutRequest, ModelParts, Violation
from day0.plan.layout_choices import complete_plain, expert_pool, stage_layouts, whole_products
from day0.plan.memory import (
    Budget,
    Capacity,
    RankNeed,
    Settings,
    blocks_for,
    dtype_word,
    plain_entry,
)
from day0.plan.memory_held import held
from day0.plan.settings import EngineSettings
from day0.plan.weights import Cuts
from day0.plan.workload import Workload
from day0.profile.cache_sizes import page_tokens, state_bytes
from day0.profile.profile import ArchitectureProfile, CachePlane, Mixer

_DEVICE_CONTEXT = int(0.71 * GIB)
"""Bytes a process holds on a GPU besides what is planned, measured on an H200 with torch 2.11: 0.61 GiB before its
first product, then kernels that are loaded as they first run, and cuBLAS' workspace of 0.03."""

_LOGIT_BYTES = 12
"""float32 logits, a float32 copy under temperature, and sorted values while top-p is applied."""


@dataclass(frozen=True, slots=True)
class Day0Accounting:
    """The settings' own defaults, so that plan and engine cannot disagree about them."""

    version: str | None = None

    @property
    def name(self) -> str:
        return "day0"

    def complete(self, request: LayoutRequest, profile: ArchitectureProfile, gpus: int) -> Layout:
        return complete_plain(request, profile, gpus)

    def layouts(self, profile: ArchitectureProfile, cluster: Cluster) -> Iterator[Layout]:
        for attention_tp, dp, pp in whole_products(cluster.gpus):
            pool = expert_pool(profile, dp * attention_tp)
            yield from stage_layouts(profile, attention_tp, attention_tp, dp, pp, pool)

    def cuts(self, layout: Layout) -> Cuts:
        return Cuts(layout.attention_tp, layout.tp, layout.tp, layout.tp, layout.ep, layout.expert_tp)

    def check(self, parts: ModelParts, layout: Layout, workload: Workload) -> tuple[Violation, ...]:
        del parts
        found = []
        if layout.cp > 1:
            found.append(Violation("engine", "day0's runtime does not spread a sequence over ranks (cp)", "--cp 1"))
        if workload.kv_dtype.startswith("fp8"):
            found.append(Violation("engine", "day0's runtime keeps no fp8 cache", "--kv-dtype bf16"))
        if workload.streams and layout.ranks > 1:
            found.append(
                Violation("engine", "day0's runtime streams no ranks' shares", "leave --offload out, or one GPU")
            )
        if workload.redundant_experts:
            remedy = "leave --redundant-experts out"
            found.append(Violation("engine", "day0's runtime keeps every expert once", remedy))
        return tuple(found)

    def notes(self, parts: ModelParts, layout: Layout, gpu: Gpu) -> tuple[str, ...]:
        del gpu
        if layout.ranks == 1:
            return ()
        host = "day0's runtime starts its ranks on one host: for several nodes plan with --engine vllm or sglang"
        if not (parts.routed and layout.dp > 1 and layout.ep == 1):
            return (host,)
        replicas = (
            f"day0's runtime does not cut an expert over {layout.dp} replicas: the launch command is left out, "
            f"--ep {layout.stage_ranks} has one"
        )
        return (host, replicas)

    def entry(self, mixer: Mixer, plane: CachePlane, kv_dtype: str) -> int:
        """Bytes of one entry of the cache: its elements, as `runtime/cache` allocates them."""
        return plain_entry(mixer, plane, kv_dtype)

    def extra_planes(self, mixer: Mixer) -> tuple[CachePlane, ...]:
        """Nothing is kept beside the planes of the profile."""
        del mixer
        return ()

    def capacity(self, need: RankNeed, pool: int) -> tuple[Capacity, int]:
        """What a pool of so many bytes holds, and the bytes of one of its pages."""
        size = _page_tokens(need)
        page_bytes = self._page_bytes(need)
        return Capacity(pool // page_bytes if page_bytes else None, size * need.cache.cp), page_bytes

    def _page_bytes(self, need: RankNeed) -> int:
        # a windowed plane is paged like any other, for all tokens
        return ceil(_page_tokens(need) * sum(layer.widest_bytes for layer in need.cache.layers))

    def budget(self, need: RankNeed) -> Budget:
        """The shares of runtime/engine/memory.py: state slots and pages come out of one fraction of what is free."""
        defaults = EngineSettings()
        fraction = need.workload.mem_fraction or defaults.mem_fraction
        kept = held(need, defaults)
        free = max(0, need.gpu.memory_bytes - _DEVICE_CONTEXT - kept.weights)
        seats = _seats(need, int(free * fraction), defaults.max_num_seqs)
        state = seats * _state_bytes(need)
        page_size, page_bytes = _page_tokens(need), self._page_bytes(need)
        pages = None
        if page_bytes:
            most = seats * blocks_for(need.workload.context, page_size)
            pages = min(most, max(0, int(free * fraction) - state) // page_bytes)
        kv_pool = (pages or 0) * page_bytes
        workspace = kept.workspace + kept.kept_experts
        tokens = need.workload.max_batched_tokens or _step_tokens(
            need, free - state - kv_pool - workspace, defaults.max_num_batched_tokens
        )
        return Budget(
            total=need.gpu.memory_bytes,
            weights=kept.weights,
            workspace=workspace,
            activations=_activations(need, tokens),
            state_pool=state,
            kv_pool=kv_pool,
            comm=0,
            overhead=_DEVICE_CONTEXT,
            capacity=Capacity(pages, page_size * need.cache.cp, slots=seats),
            settings=Settings(fraction, seats, tokens),
        )


def _page_tokens(need: RankNeed) -> int:
    return page_tokens(need.profile.layers, EngineSettings().page_size)


def _state_bytes(need: RankNeed) -> int:
    """Per sequence: states, and the tails of unfinished entries, which the runtime keeps beside them."""
    word = dtype_word(need.profile)
    tails = (tail for layer in need.layers for tail in layer.tail_shapes())
    return need.cache.state_bytes + sum(state_bytes(tail, word) for tail in tails)


def _seats(need: RankNeed, budget: int, default: int) -> int:
    """Sequences at once: as asked, else the default cut to what half of the cache's share keeps states for."""
    if need.workload.max_num_seqs:
        return need.workload.max_num_seqs
    state = _state_bytes(need)
    affordable = budget // 2 // state if state else default
    return max(need.sequences, min(default, affordable))


def _step_tokens(need: RankNeed, room: int, most: int) -> int:
    """Tokens of a step: the default, halved until their activations fit into `room`; reference attention stores its
    scores, so a long context asks for short steps."""
    tokens = most
    while tokens > 1 and _activations(need, tokens) > room:
        tokens //= 2
    return tokens


def _activations(need: RankNeed, tokens: int) -> int:
    """The dearest moment of a step: a layer worked in float32 with its scores, or the logits of all sequences.

    Sequences that are read in attend one after another, so that scores are of one of them.
    """
    context = need.workload.context
    layer = forward_peak(need, tokens, inner_bytes=4) + stored_attention_bytes(need, min(tokens, context), context)
    return max(layer, logits_peak(need, need.sequences, _LOGIT_BYTES))
