"""How vLLM divides a GPU: a share of the whole card, less weights, measured peak and communicators; the rest is blocks.

Sources of the formulas and of the few measured constants are in `docs/memory.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from day0.plan.activations import forward_peak, logits_peak
from day0.plan.cluster import GIB, Cluster, Gpu
from day0.plan.engine_version import Release, is_since
from day0.plan.expert_padding import padded_bytes, padding_notes, vllm_padding
from day0.plan.kv_formats import is_latent, kernel_entry, pending_planes
from day0.plan.layout import Layout, LayoutRequest, ModelParts, Violation
from day0.plan.layout_choices import complete_plain, expert_pool, stage_layouts, whole_products
from day0.plan.memory import Budget, Capacity, RankNeed, Settings, element_size
from day0.plan.memory_held import only_of_our_runtime
from day0.plan.mixer_sizes import latent_part
from day0.plan.unprofiled import VLLM_DRAFTED, captured_sizes, draft_risk, draft_scratch, graph_bytes, graph_risk
from day0.plan.vllm_blocks import STATE_BLOCKS, Demand, blocks_of
from day0.plan.vllm_packed import Packing
from day0.plan.weights import Cuts
from day0.plan.workload import Workload
from day0.profile.profile import ArchitectureProfile, CachePlane, LayerSpec, Mixer

DEFAULT_FRACTION = 0.9
_LATENT_BLOCK_TOKENS = 128
"""Alignment of a latent layer's block in hybrid models, which the decoding kernels ask for."""
_NON_TORCH = int(0.13 * GIB)
_FIRST_ENGINE_NON_TORCH = (int(0.35 * GIB), int(1.79 * GIB))
"""What builds before V1 logged on an RTX 3090 and on an H100."""
_COMMUNICATORS = int(0.41 * GIB)
_LOGIT_BYTES = 38
"""A row of logits while the sampler is profiled: 2 (model dtype), 4 + 4 (float32 and a copy), 4 + 8 (sorted values
and indices), 12 (the sort's second buffers), 4 (probabilities)."""
_BOTH_GRAPHS = Release((0, 11), "2025-10-02")
"""From here on each size is captured twice, whole for decoding and in pieces for mixed steps (FULL_AND_PIECEWISE)."""
_GRAPHS_COUNTED = Release((0, 21), "2026-05-15")
_SECOND_ENGINE = Release((0, 8), "2025-03-18")
_STEPS_OVERLAP = Release((0, 26), "2026-07-25")
"""From here on windowed layers reserve room for the tokens of two steps in flight."""
_PACKED_BY_SIZE = Release((0, 23), "2026-06-15")
_PACKED_BY_GROUP = Release((0, 27), "2026-08-16")
_LARGEST_STEPS = Release((0, 32), "2026-10-20")
_STAGED_DRAFTS = _LARGEST_STEPS
_BIG_CARD = 70 * GIB
_LARGEST_CARD = 160 * GIB


@dataclass(frozen=True, slots=True)
class VllmAccounting:
    """vLLM's V1 engine; graphs count inside the share from 0.21 on."""

    version: str | None = None

    @property
    def name(self) -> str:
        return "vllm"

    def complete(self, request: LayoutRequest, profile: ArchitectureProfile, gpus: int) -> Layout:
        return complete_plain(request, profile, gpus)

    def layouts(self, profile: ArchitectureProfile, cluster: Cluster) -> Iterator[Layout]:
        for attention_tp, dp, pp in whole_products(cluster.gpus):
            pool = expert_pool(profile, dp * attention_tp)
            yield from stage_layouts(profile, attention_tp, attention_tp, dp, pp, pool, ends_only=True)

    def cuts(self, layout: Layout) -> Cuts:
        return Cuts(
            layout.attention_tp, layout.tp, layout.tp, layout.tp, layout.ep, layout.expert_tp, layout.attention_tp
        )

    def check(self, parts: ModelParts, layout: Layout, workload: Workload) -> tuple[Violation, ...]:
        found = [*only_of_our_runtime(workload, "vLLM")]
        pool = layout.stage_ranks
        found += self._drafts(parts, layout, workload.drafted(VLLM_DRAFTED))
        if parts.routed and layout.ep not in (1, pool):
            found.append(
                Violation(
                    "engine-experts",
                    f"vLLM deals experts over all {pool} ranks of a stage or slices each one, not ep {layout.ep}",
                    f"--ep 1 or --ep {pool}",
                )
            )
        if layout.tp != layout.attention_tp:
            found.append(
                Violation(
                    "engine-dense-width",
                    f"vLLM cuts dense layers as it cuts attention: tp {layout.tp}, attention tp {layout.attention_tp}",
                    f"--tp {layout.attention_tp}",
                )
            )
        return tuple(found)

    def _drafts(self, parts: ModelParts, layout: Layout, drafted: int) -> Iterator[Violation]:
        """Predictors run in whole rounds, and older versions demand of a drafter that it be cut into stages."""
        depths = parts.profile.mtp.depths if parts.profile.mtp is not None else 1
        if drafted > depths and drafted % depths:
            yield Violation(
                "engine-drafts",
                f"vLLM runs the {depths} predictors in whole rounds, and {drafted} drafted tokens are none",
                f"--drafted-tokens of 1 to {depths}, or a multiple of {depths}",
            )
        if drafted and layout.pp > 1 and not is_since(self.version, _STAGED_DRAFTS):
            yield Violation(
                "engine-drafts",
                f"vLLM {self.version} does not build predictors beside pp {layout.pp}; 0.32 is the first known to",
                "--no-speculate, --pp 1, or a newer --engine-version",
            )

    def notes(self, parts: ModelParts, layout: Layout, gpu: Gpu) -> tuple[str, ...]:
        notes = list(padding_notes(parts.profile, layout, vllm_padding(parts.profile, gpu, self.version)))
        tower = parts.profile.vision
        if tower is not None and tower.num_heads % layout.attention_tp:
            notes.append(
                f"the vision tower's {tower.num_heads} heads do not divide by tp {layout.attention_tp}: start with "
                "--mm-encoder-tp-mode data, which holds the whole tower on every rank, as counted here"
            )
        if layout.cp > 1 and any(mixer.state_shapes() for mixer in parts.mixers):
            notes.append("check that the installed vLLM takes decode context parallelism on hybrid models")
        return tuple(notes)

    def entry(self, mixer: Mixer, plane: CachePlane, kv_dtype: str) -> int:
        """Bytes of one entry of the cache, uncut."""
        return kernel_entry(mixer, plane, kv_dtype)

    def extra_planes(self, mixer: Mixer) -> tuple[CachePlane, ...]:
        """What the engine keeps in its pool beside the planes of the profile."""
        return pending_planes(mixer)

    def defaults(self, gpu: Gpu) -> tuple[int, int]:
        """Requests at once and tokens of a step where none are asked for, by the GPU's memory as `vllm serve` does."""
        if gpu.memory_bytes < _BIG_CARD or gpu.name.startswith("a100"):
            return 256, 2048
        largest = gpu.memory_bytes >= _LARGEST_CARD and is_since(self.version, _LARGEST_STEPS)
        return (1024, 16384) if largest else (1024, 8192)

    def budget(self, need: RankNeed) -> Budget:
        settings = self._settings(need)
        weights = need.weights.total + self.expert_padding(need) + _absorbed_copies(need)
        layer = forward_peak(need, settings.max_batched_tokens)
        activations = max(layer, logits_peak(need, settings.max_num_seqs, _LOGIT_BYTES))
        comm = _COMMUNICATORS if need.layout.ranks > 1 else 0
        outside = _NON_TORCH
        if not self.is_second_engine:
            outside = _FIRST_ENGINE_NON_TORCH[need.gpu.memory_bytes >= _BIG_CARD]
        graphs, most_graphs = self._graphs(need, settings.max_num_seqs)
        counted = outside + (graphs if self.counts_graphs else 0)
        scratch, more = draft_scratch(need, settings.max_num_seqs)
        share = int(need.gpu.memory_bytes * settings.mem_fraction)
        pool = max(0, share - weights - activations - comm - counted)
        capacity, block_bytes = self.capacity(need, pool)
        least = self.capacity(need, max(0, pool - (most_graphs - graphs)))[0] if self.counts_graphs else None
        held = capacity.blocks if capacity.blocks is not None else capacity.slots or 0
        fixed = need.sequences * (capacity.fixed_blocks if capacity.blocks is not None else 1)
        state = min(held, fixed) * block_bytes
        return Budget(
            total=need.gpu.memory_bytes,
            weights=weights,
            workspace=0,
            activations=activations,
            state_pool=state,
            kv_pool=held * block_bytes - state,
            comm=comm,
            overhead=outside + graphs + scratch,
            capacity=capacity,
            settings=settings,
            risks=(graph_risk(graphs, most_graphs, in_pool=self.counts_graphs), draft_risk(scratch, more)),
            least=least,
        )

    def _graphs(self, need: RankNeed, requests: int) -> tuple[int, int]:
        """Bytes of the graphs, and the most there are in logs."""
        sizes = captured_sizes(requests, need.workload.drafted(VLLM_DRAFTED))
        return graph_bytes(len(need.layers), sizes, 2 if is_since(self.version, _BOTH_GRAPHS) else 1)

    def capacity(self, need: RankNeed, pool: int) -> tuple[Capacity, int]:
        """What a pool of so many bytes holds, and the bytes of one of its blocks."""
        tokens = self._settings(need).max_batched_tokens
        steps = 2 if is_since(self.version, _STEPS_OVERLAP) else 1
        latent = any(is_latent(layer.mixer) for layer in need.layers)
        align = _LATENT_BLOCK_TOKENS if latent else 16
        demand = Demand(
            need.workload.context,
            steps * tokens,
            align,
            STATE_BLOCKS + need.workload.drafted(VLLM_DRAFTED),
            self._packing,
        )
        return blocks_of(need.cache, pool, demand)

    @property
    def _packing(self) -> Packing:
        if is_since(self.version, _PACKED_BY_GROUP):
            return "group"
        return "sizes" if is_since(self.version, _PACKED_BY_SIZE) else "tuples"

    def _settings(self, need: RankNeed) -> Settings:
        workload = need.workload
        rows, tokens = self.defaults(need.gpu)
        if not self.is_second_engine:  # a prompt went through in one step, unless it was so long that it was cut
            rows, tokens = 256, max(2048, workload.context) if workload.context <= 32768 else 512
        return Settings(
            workload.mem_fraction or DEFAULT_FRACTION,
            workload.max_num_seqs or max(rows, need.sequences),
            workload.max_batched_tokens or tokens,
        )

    @property
    def is_second_engine(self) -> bool:
        """Whether V1 is the default, whose steps are chunked whatever the context."""
        return is_since(self.version, _SECOND_ENGINE)

    @property
    def counts_graphs(self) -> bool:
        """Whether the graphs' estimated size is taken from the share."""
        return is_since(self.version, _GRAPHS_COUNTED)

    def expert_padding(self, need: RankNeed) -> int:
        """Bytes that the kernels' padding adds to this rank's experts."""
        padding = vllm_padding(need.profile, need.gpu, self.version)
        return padded_bytes(need.profile, need.layers, need.layout, padding, need.weights.experts)


def _absorbed_copies(need: RankNeed) -> int:
    """Bytes of the copies of kv_b_proj that latent attention keeps for decoding, beside the stored matrix."""
    return sum(absorbed_elements(layer, need.layout.attention_tp) for layer in need.layers) * element_size(need.profile)


def absorbed_elements(layer: LayerSpec, attention_tp: int) -> int:
    """Elements of one layer's key and value halves of kv_b_proj, on one rank."""
    mixer = latent_part(layer.mixer)
    if mixer is None:
        return 0
    heads = -(-mixer.num_heads // attention_tp)
    return heads * (mixer.qk_nope_head_dim + mixer.v_head_dim) * mixer.kv_lora_rank
