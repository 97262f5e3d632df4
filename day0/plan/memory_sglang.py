"""How SGLang divides a GPU: a static fraction for weights and pools; activations and graphs live in what is left.

Sources of the formulas and of the few measured constants are in `docs/memory.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from day0.plan.activations import forward_peak, logits_peak
from day0.plan.cluster import GIB, Cluster, Gpu
from day0.plan.engine_version import Release, is_since
from day0.plan.expert_padding import padded_bytes, sglang_padding
from day0.plan.kv_formats import kernel_entry, pending_planes, shared_part
from day0.plan.layout import Layout, LayoutRequest, ModelParts, Violation
from day0.plan.layout_choices import divisors, expert_pool, fill, is_routed, stage_layouts, whole_products
from day0.plan.memory import Budget, Capacity, LayerCache, RankNeed, Settings, element_size
from day0.plan.memory_held import only_of_our_runtime
from day0.plan.memory_vllm import absorbed_elements
from day0.plan.mixer_sizes import latent_part
from day0.plan.unprofiled import graph_bytes, graph_risk, sglang_captured_sizes
from day0.plan.weights import Cuts
from day0.plan.workload import Workload
from day0.profile.profile import ArchitectureProfile, CachePlane, Mixer

DEFAULT_NUM_SEQS = 256
SPECULATING_NUM_SEQS = 48
"""Requests at once that SGLang lowers its limit to where it drafts and none is asked for."""
_SMALL_CARDS = Release((0, 5, 23), "2026-10-30")
_DEFAULTS = ((20, 2048, 8, 8), (35, 4096, 48, 160), (60, 4096, 32, 160), (160, 8192, 256, 512))
"""Below so many GiB: tokens of a chunk, and the largest batch with a graph below tp 4 and from it on."""
_OLDER_DEFAULTS = ((20, 2048, 8, 8), (35, 2048, 24, 80), *_DEFAULTS[2:])
_LARGEST_DEFAULTS = (16384, 512, 512)
SGLANG_DRAFTED = 3
"""Tokens that SGLang drafts unless told how many; a speculating request has a state for each and the one before."""
_MIB = 2**20
_CONTEXT = int(0.25 * GIB)
_COMMUNICATORS = int(0.13 * GIB)
_STATE_RATIO = 0.9
STATE_SLOTS_PER_REQUEST = 3
"""State slots per running request with the prefix cache on: the request's own and the states it leaves in the cache."""
_LOGIT_BYTES = 12
_WINDOW_SHARE = Fraction(4, 5)
"""Tokens of the windowed pool for one of the full pool; `swa_full_tokens_ratio` 0.8."""
_SHARED_WINDOW_SHARE = Fraction(1, 10)
"""The same where compressed entries stand for the tokens before the window (DeepSeek-V4)."""
_BIG_CARD = 60 * GIB
_LEAST_RESERVE = 10 * GIB


@dataclass(frozen=True, slots=True)
class SglangAccounting:
    """SGLang's `tp` counts all ranks of a stage where attention is data-parallel; else `dp` are whole replicas."""

    version: str | None = None

    @property
    def name(self) -> str:
        return "sglang"

    def complete(self, request: LayoutRequest, profile: ArchitectureProfile, gpus: int) -> Layout:
        pp, dp = request.pp or 1, request.dp or 1
        if self._means_dp_attention(request, profile, gpus):
            tp = request.tp or gpus // pp
            return fill(profile, request, tp, request.attention_tp or max(1, tp // dp), dp, pp, tp)
        attention_tp = request.attention_tp or request.tp or max(1, gpus // (pp * dp))
        return fill(profile, request, request.tp or attention_tp, attention_tp, dp, pp, attention_tp)

    def _means_dp_attention(self, request: LayoutRequest, profile: ArchitectureProfile, gpus: int) -> bool:
        pp, dp = request.pp or 1, request.dp or 1
        if dp == 1:
            return False
        if request.attention_tp is not None and request.tp is not None:
            return request.tp == request.attention_tp * dp
        if request.tp is not None:
            return request.tp * pp == gpus and request.tp % dp == 0
        # Only dp said: sharing the experts between replicas is what it is for in a routed model.
        return is_routed(profile) and request.attention_tp is None and gpus // pp % dp == 0

    def layouts(self, profile: ArchitectureProfile, cluster: Cluster) -> Iterator[Layout]:
        for attention_tp, dp, pp in whole_products(cluster.gpus):
            yield from stage_layouts(profile, attention_tp, attention_tp, dp, pp, expert_pool(profile, attention_tp))
            if dp > 1 and is_routed(profile):
                ranks = dp * attention_tp
                yield from stage_layouts(profile, ranks, attention_tp, dp, pp, ranks)

    def cuts(self, layout: Layout) -> Cuts:
        # With DP attention the input table stays with the attention group, the head is cut over all ranks.
        return Cuts(
            layout.attention_tp,
            layout.tp,
            layout.attention_tp,
            layout.tp,
            layout.ep,
            layout.expert_tp,
            layout.attention_tp,
        )

    def check(self, parts: ModelParts, layout: Layout, workload: Workload) -> tuple[Violation, ...]:
        found = only_of_our_runtime(workload, "SGLang")
        if parts.routed and layout.ep * layout.expert_tp != layout.tp:
            found += (
                Violation(
                    "engine-experts",
                    f"SGLang deals experts over its tp of {layout.tp} ranks; ep {layout.ep} does not divide it",
                    f"ep of {', '.join(map(str, divisors(layout.tp)))}",
                ),
            )
        return found

    def notes(self, parts: ModelParts, layout: Layout, gpu: Gpu) -> tuple[str, ...]:
        del parts, gpu
        if layout.dp > 1 and layout.tp > layout.attention_tp:
            return (f"DP attention: {layout.dp} replicas of attention share the experts of {layout.tp} ranks",)
        return ()

    def entry(self, mixer: Mixer, plane: CachePlane, kv_dtype: str) -> int:
        """Bytes of one entry of the cache, uncut."""
        return kernel_entry(mixer, plane, kv_dtype)

    def extra_planes(self, mixer: Mixer) -> tuple[CachePlane, ...]:
        """What compressors have pending: a ring of rows for each page of the windowed pool."""
        return pending_planes(mixer)

    def capacity(self, need: RankNeed, pool: int) -> tuple[Capacity, int]:
        """What a pool of so many bytes holds, its state pool taken elsewhere; a token is the unit."""
        capacity, _ = self._pools(need, pool, None)
        return capacity, need.cache.token_bytes

    def _pools(self, need: RankNeed, room: int, slots: int | None) -> tuple[Capacity, int]:
        """Tokens that `room` bytes hold, and the bytes taken.

        Windowed planes have a pool of their own with a share of the full pool's tokens (`swa_full_tokens_ratio`), so a
        token costs its full planes and that share of its windowed ones.
        """
        full = need.cache.exact_token_bytes
        shared = any(shared_part(layer.mixer) for layer in need.layers)
        share = _SHARED_WINDOW_SHARE if shared else _WINDOW_SHARE
        windowed = sum((windowed_bytes(layer, need.workload.speculate) for layer in need.cache.layers), Fraction(0))
        cost = full + share * windowed if full else windowed
        if not cost:
            return Capacity(None, need.cache.cp, slots=slots), 0
        tokens = max(0, int(room / cost))
        return Capacity(tokens, need.cache.cp, slots=slots), int(tokens * cost)

    def budget(self, need: RankNeed) -> Budget:
        layout, workload = need.layout, need.workload
        chunk = workload.max_batched_tokens or self.defaults(need.gpu, layout)[0]
        running = running_requests(need)
        fraction = workload.mem_fraction or self.default_fraction(need, chunk, running)
        comm = _COMMUNICATORS if layout.ranks > 1 else 0
        at_start = need.gpu.memory_bytes - _CONTEXT - comm
        weights = need.weights.total + sum(
            absorbed_elements(layer, layout.attention_tp) for layer in need.layers
        ) * element_size(need.profile)
        weights += padded_bytes(need.profile, need.layers, layout, sglang_padding(need.profile), need.weights.experts)
        rest = max(0, int(at_start * fraction) - weights)
        state, slots, asked = state_pool(need, rest)
        capacity, pool = self._pools(need, rest - state, slots)
        graph_batch = min(running, self.defaults(need.gpu, layout)[1])
        graphs, most_graphs = graph_bytes(
            len(need.layers), sglang_captured_sizes(graph_batch, drafts=workload.speculate), 1
        )
        table = running * (workload.context + 4) * 4
        return Budget(
            total=need.gpu.memory_bytes,
            weights=weights,
            workspace=0,
            activations=max(forward_peak(need, chunk), logits_peak(need, running, _LOGIT_BYTES)),
            state_pool=state,
            kv_pool=pool,
            comm=comm,
            overhead=_CONTEXT + graphs + table,
            capacity=capacity,
            settings=Settings(fraction, running, chunk, asked),
            risks=(graph_risk(graphs, most_graphs, in_pool=False),),
        )

    def defaults(self, gpu: Gpu, layout: Layout) -> tuple[int, int]:
        """Tokens of a chunk and the largest batch with a graph, by the GPU's memory; replicas share a chunk out."""
        table = _DEFAULTS if is_since(self.version, _SMALL_CARDS) else _OLDER_DEFAULTS
        rows = (row for limit, *row in table if gpu.memory_bytes < limit * GIB)
        chunk, few, many = next(rows, _LARGEST_DEFAULTS)
        shared = layout.dp if layout.tp > layout.attention_tp else 1
        return chunk // shared, few if layout.tp < 4 else many

    def default_fraction(self, need: RankNeed, chunk: int, running: int) -> float:
        """The share SGLang computes where none is given: 1 less a reserve for chunks, graphs and communicators."""
        layout = need.layout
        graph_batch = min(running, self.defaults(need.gpu, layout)[1])
        reserve = 512 + 1.5 * chunk + 2 * graph_batch + 1024 * layout.tp * layout.pp / 8
        if layout.tp > layout.attention_tp:
            reserve += 3 * graph_batch * layout.dp
        if any(latent_part(layer.mixer) for layer in need.profile.layers):
            reserve += 1536
        nbytes = reserve * _MIB
        if need.gpu.memory_bytes > _BIG_CARD:
            nbytes = max(nbytes, _LEAST_RESERVE)
        return max(0.05, round(1 - nbytes / need.gpu.memory_bytes, 3))


def windowed_bytes(layer: LayerCache, speculate: bool) -> Fraction:
    """Bytes of one token of the windowed pool in a layer.

    Each page of the pool, as long as the window, has a ring of the rows that compressors have pending, twice as long
    where tokens are drafted (`DSV4PoolConfigurator`).
    """
    windows = [plane for plane in layer.windowed if not plane.pending]
    page = max((plane.window or 1 for plane in windows), default=1)
    rings = sum((plane.window or 0) * plane.entry_bytes for plane in layer.windowed if plane.pending)
    plain = sum((Fraction(plane.entry_bytes, plane.stride) for plane in windows), Fraction(0))
    return plain + Fraction(rings * (2 if speculate else 1), page)


def running_requests(need: RankNeed) -> int:
    """Requests that a replica may run at once: as asked, else the engine's limit or the demand, if that is more."""
    limit = SPECULATING_NUM_SEQS if need.workload.speculate else DEFAULT_NUM_SEQS
    return need.workload.max_num_seqs or max(limit, need.sequences)


def state_pool(need: RankNeed, rest: int) -> tuple[int, int | None, int | None]:
    """Bytes of the state pool, the requests that it lets run, and the slots to ask for.

    The engine's own share is rest x r/(1+r); where the demand needs more, the plan asks for its slots by number. A
    speculating engine first sets aside a state for each drafted token of every request that may run at once
    (`handle_max_mamba_cache`), however many do.
    """
    state = need.cache.state_bytes
    if not state:
        return 0, None, None
    drafted = 0
    if need.workload.speculate:
        states = need.workload.drafted(SGLANG_DRAFTED) + 1
        drafted = min(rest, states * running_requests(need) * state)
        rest -= drafted
    usual = int(rest * _STATE_RATIO / (1 + _STATE_RATIO)) // state
    wanted = min(STATE_SLOTS_PER_REQUEST * need.sequences, rest // state)
    slots = max(usual, wanted)
    return drafted + slots * state, slots // STATE_SLOTS_PER_REQUEST, wanted if wanted > usual else None
