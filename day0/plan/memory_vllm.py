"""How vLLM divides a GPU: a share of the whole card, less weights, measured peak and communicators; the rest is blocks.

Sources of the formulas and of the few measured constants are in `docs/memory.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from day0.plan.activations import forward_peak, logits_peak
from day0.plan.cluster import GIB, Cluster
from day0.plan.engine_version import is_since
from day0.plan.layout import Layout, LayoutRequest, ModelParts, Violation
from day0.plan.layout_choices import complete_plain, expert_pool, stage_layouts, whole_products
from day0.plan.memory import Budget, Capacity, LayerCache, RankCache, RankNeed, Settings, element_size
from day0.plan.weights import Cuts
from day0.plan.workload import Workload
from day0.profile.profile import ArchitectureProfile, KimiDeltaAttention, LatentAttention, LayerSpec, RoutedExperts

DEFAULT_FRACTION = 0.9
DEFAULT_BATCHED_TOKENS = 8192
DEFAULT_NUM_SEQS = 256
_BLOCK_TOKENS = 16
_LATENT_BLOCK_TOKENS = 128
"""Alignment of a latent layer's block in hybrid models, which the decoding kernels ask for."""
_STATE_BLOCKS = 2
"""State pages per group that a request may hold with prefix caching on: the running state and the last aligned one."""
_NON_TORCH = int(0.13 * GIB)
_COMMUNICATORS = int(0.41 * GIB)
_GRAPHS = GIB
_LOGIT_BYTES = 38
"""A row of logits while the sampler is profiled: 2 (model dtype), 4 + 4 (float32 and a copy), 4 + 8 (sorted values
and indices), 12 (the sort's second buffers), 4 (probabilities)."""
_KERNEL_COLUMNS = ((0, 32), 128, 256)
"""Slices of MXFP4 experts are padded to multiples of 128 columns from 0.32 on, of 256 before (384 became 512)."""
_GRAPHS_COUNTED = (0, 21)


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
        return Cuts(layout.attention_tp, layout.tp, layout.tp, layout.tp, layout.ep, layout.expert_tp)

    def check(self, parts: ModelParts, layout: Layout, workload: Workload) -> tuple[Violation, ...]:
        del workload
        found = []
        pool = layout.stage_ranks
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

    def notes(self, parts: ModelParts, layout: Layout) -> tuple[str, ...]:
        notes = []
        if layout.cp > 1 and any(isinstance(mixer, KimiDeltaAttention) for mixer in parts.mixers):
            notes.append("check that the installed vLLM takes decode context parallelism on hybrid models")
        padded = sum(self.padding(parts.profile, spec, layout) > 0 for spec in parts.routed)
        if padded:
            notes.append(
                f"experts cut into {layout.expert_tp} slices are padded to multiples of {self.kernel_columns} columns, "
                "which is counted in weights; whole experts (--ep) are not"
            )
        return tuple(notes)

    def budget(self, need: RankNeed) -> Budget:
        workload = need.workload
        fraction = workload.mem_fraction or DEFAULT_FRACTION
        rows = max(workload.max_num_seqs or DEFAULT_NUM_SEQS, need.sequences if not workload.max_num_seqs else 0)
        tokens = workload.max_batched_tokens or DEFAULT_BATCHED_TOKENS
        weights = need.weights.total + self.expert_padding(need) + _absorbed_copies(need)
        activations = max(forward_peak(need, tokens), logits_peak(need, rows, _LOGIT_BYTES))
        comm = _COMMUNICATORS if need.layout.ranks > 1 else 0
        counted = _NON_TORCH + (_GRAPHS if self.counts_graphs else 0)
        pool = max(0, int(need.gpu.memory_bytes * fraction) - weights - activations - comm - counted)
        latent = any(isinstance(layer.mixer, LatentAttention) for layer in need.layers)
        align = _LATENT_BLOCK_TOKENS if latent else _BLOCK_TOKENS
        capacity, block_bytes = blocks_of(need.cache, pool, need.workload.context, tokens, align)
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
            overhead=_NON_TORCH + _GRAPHS,
            capacity=capacity,
            settings=Settings(fraction, rows, tokens),
        )

    @property
    def counts_graphs(self) -> bool:
        """Whether the graphs' estimated size is taken from the share."""
        return is_since(self.version, _GRAPHS_COUNTED)

    @property
    def kernel_columns(self) -> int:
        since, newer, older = _KERNEL_COLUMNS
        return newer if is_since(self.version, since) else older

    def padding(self, profile: ArchitectureProfile, spec: RoutedExperts, layout: Layout) -> int:
        """Columns a slice of an expert is padded by."""
        packing = profile.quantization.of("routed_experts") if profile.quantization is not None else None
        if packing is None or packing.name != "mxfp4" or layout.expert_tp == 1:
            return 0
        return -(spec.width // layout.expert_tp) % self.kernel_columns

    def expert_padding(self, need: RankNeed) -> int:
        """Bytes that padding adds to this rank's expert slices; every expert tensor grows with the slice's width."""
        specs = [layer.feed_forward for layer in need.layers if isinstance(layer.feed_forward, RoutedExperts)]
        if not specs:
            return 0
        columns = max(1, specs[0].width // need.layout.expert_tp)
        return need.weights.experts * self.padding(need.profile, specs[0], need.layout) // columns


def blocks_of(cache: RankCache, pool: int, context: int, chunk: int, align: int) -> tuple[Capacity, int]:
    """Blocks that `pool` bytes make, and the bytes of one.

    One page size serves every layer. With state, the attention block grows in steps of `align` tokens until its page
    holds one layer's state; layers are grouped by kind into groups as large as the smallest kind, and a block is a
    page for each layer of a group. A sequence then takes two blocks per group of state layers, and per group of
    attention layers one for each `block_tokens`.
    """
    full = [layer for layer in cache.layers if layer.token_bytes and layer.window is None]
    windowed = [layer for layer in cache.layers if layer.token_bytes and layer.window is not None]
    states = [layer for layer in cache.layers if layer.state_bytes]
    if not full and not windowed:
        if not states:
            return Capacity(None, _BLOCK_TOKENS), 0
        held = pool // (_STATE_BLOCKS * cache.state_bytes)
        return Capacity(None, _BLOCK_TOKENS, slots=held), _STATE_BLOCKS * cache.state_bytes
    if not windowed and not states:
        block_bytes = _BLOCK_TOKENS * cache.token_bytes
        return Capacity(pool // block_bytes, _BLOCK_TOKENS * cache.cp), block_bytes
    token_bytes = max(layer.token_bytes for layer in (*full, *windowed))
    largest = max((layer.state_bytes for layer in states), default=0)
    # the fewest steps whose page is as large as one layer's state; without state there is nothing to grow for
    block_tokens = -(-largest // (token_bytes * align)) * align if largest else _BLOCK_TOKENS
    group = _group_size([len(kind) for kind in (full, windowed, states) if kind])
    block_bytes = block_tokens * token_bytes * group
    fixed = _STATE_BLOCKS * -(-len(states) // group)
    fixed += -(-len(windowed) // group) * _window_blocks(windowed, context, chunk, block_tokens)
    groups = -(-len(full) // group)
    return Capacity(pool // block_bytes, block_tokens * cache.cp, fixed, groups=groups), block_bytes


def _group_size(counts: list[int]) -> int:
    """Layers per group: the rarest kind's, or the commonest's where that is less than half as many again."""
    return max(counts) if max(counts) < 1.5 * min(counts) else min(counts)


def _window_blocks(windowed: list[LayerCache], context: int, chunk: int, block_tokens: int) -> int:
    """Blocks of a windowed group for one sequence: the window and one chunk of prefill, never more than the context."""
    window = max((layer.window or 0 for layer in windowed), default=0)
    return -(-min(context, window - 1 + chunk) // block_tokens) + 1 if windowed else 0


def _absorbed_copies(need: RankNeed) -> int:
    """Bytes of the copies of kv_b_proj that latent attention keeps for decoding, beside the stored matrix."""
    return sum(absorbed_elements(layer, need.layout.attention_tp) for layer in need.layers) * element_size(need.profile)


def absorbed_elements(layer: LayerSpec, attention_tp: int) -> int:
    """Elements of one layer's key and value halves of kv_b_proj, on one rank."""
    mixer = layer.mixer
    if not isinstance(mixer, LatentAttention):
        return 0
    heads = -(-mixer.num_heads // attention_tp)
    return heads * (mixer.qk_nope_head_dim + mixer.v_head_dim) * mixer.kv_lora_rank
