"""How day0's own runtime divides a GPU: stored weights, one conversion workspace, state slots, pages; no graphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from day0.plan.activations import forward_peak, logits_peak
from day0.plan.cluster import GIB, Cluster
from day0.plan.layout import Layout, LayoutRequest, Violation
from day0.plan.layout_choices import complete_plain, expert_pool, stage_layouts, whole_products
from day0.plan.memory import Budget, Capacity, RankNeed, Settings, conversion_workspace
from day0.plan.settings import EngineSettings
from day0.plan.weights import Cuts
from day0.profile.profile import ArchitectureProfile

_DEVICE_CONTEXT = GIB // 2
"""Bytes a process holds on a GPU before its first tensor: driver context and loaded kernels, about half a GiB."""

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

    def check(self, profile: ArchitectureProfile, layout: Layout) -> tuple[Violation, ...]:
        del profile
        if layout.cp > 1:
            return (Violation("engine", "day0's runtime does not spread a sequence over ranks (cp)", "--cp 1"),)
        return ()

    def notes(self, profile: ArchitectureProfile, layout: Layout) -> tuple[str, ...]:
        del profile
        if layout.ranks == 1:
            return ()
        return (
            f"day0's runtime starts one process on one device today, not {layout.ranks} ranks: layout and memory are "
            "checked, the launch command is left out; plan with --engine vllm or sglang to start this layout",
        )

    def budget(self, need: RankNeed) -> Budget:
        settings = EngineSettings()
        fraction = need.workload.mem_fraction or settings.mem_fraction
        tokens = need.workload.max_batched_tokens or settings.max_num_batched_tokens
        workspace = conversion_workspace(need.profile, need.layers, settings.workspace_experts, need.layout.expert_tp)
        rest = need.gpu.memory_bytes - _DEVICE_CONTEXT - need.weights.total - workspace
        slots = self.slots(need, max(0, rest), settings)
        state = slots * need.cache.state_bytes
        page_bytes = settings.page_size * need.cache.token_bytes
        pages = int(max(0, rest - state) * fraction) // page_bytes if page_bytes else None
        return Budget(
            total=need.gpu.memory_bytes,
            weights=need.weights.total,
            workspace=workspace,
            activations=max(forward_peak(need, tokens), logits_peak(need, slots, _LOGIT_BYTES)),
            state_pool=state,
            kv_pool=(pages or 0) * page_bytes,
            comm=0,
            overhead=_DEVICE_CONTEXT,
            capacity=Capacity(pages, settings.page_size * need.cache.cp, slots=slots),
            settings=Settings(fraction, slots, tokens),
        )

    def slots(self, need: RankNeed, rest: int, settings: EngineSettings) -> int:
        """Sequences at once: as asked, else the default cut to what half of the free memory keeps states for."""
        if need.workload.max_num_seqs:
            return need.workload.max_num_seqs
        state = need.cache.state_bytes
        affordable = settings.max_num_seqs if not state else rest // 2 // state
        return max(need.sequences, min(settings.max_num_seqs, affordable))
