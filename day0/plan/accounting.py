"""Which engines day0 can plan for, and what each one's accounting must answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from day0.errors import InputError
from day0.plan.cluster import Cluster, Gpu
from day0.plan.layout import Layout, LayoutRequest, ModelParts, Violation
from day0.plan.memory import Budget, Capacity, RankNeed
from day0.plan.memory_day0 import Day0Accounting
from day0.plan.memory_sglang import SglangAccounting
from day0.plan.memory_vllm import VllmAccounting
from day0.plan.weights import Cuts
from day0.plan.workload import Workload
from day0.profile.profile import ArchitectureProfile, CachePlane, Mixer


class Accounting(Protocol):
    """How one engine reads a layout and divides a GPU's memory; `version` is the engine's, None the newest known."""

    @property
    def version(self) -> str | None: ...

    @property
    def name(self) -> str: ...

    def complete(self, request: LayoutRequest, profile: ArchitectureProfile, gpus: int) -> Layout:
        """The layout that a request means on so many GPUs."""
        ...

    def layouts(self, profile: ArchitectureProfile, cluster: Cluster) -> Iterator[Layout]:
        """All layouts the engine could be asked for on the whole cluster, legal for the model's sizes or not."""
        ...

    def cuts(self, layout: Layout) -> Cuts:
        """How the engine cuts weights under a layout."""
        ...

    def check(self, parts: ModelParts, layout: Layout, workload: Workload) -> tuple[Violation, ...]:
        """Rules of this engine besides those of `layout.RULES`."""
        ...

    def notes(self, parts: ModelParts, layout: Layout, gpu: Gpu) -> tuple[str, ...]:
        """What a reader should know of running this layout on this engine and GPU."""
        ...

    def entry(self, mixer: Mixer, plane: CachePlane, kv_dtype: str) -> int:
        """Bytes of one entry of the cache, uncut, as the engine lays it out."""
        ...

    def extra_planes(self, mixer: Mixer) -> tuple[CachePlane, ...]:
        """What the engine keeps in its pool beside the planes of the profile."""
        ...

    def capacity(self, need: RankNeed, pool: int) -> tuple[Capacity, int]:
        """What a pool of so many bytes holds, and the bytes of one of its blocks."""
        ...

    def budget(self, need: RankNeed) -> Budget:
        """How the engine divides one GPU for this rank."""
        ...


ACCOUNTINGS: Mapping[str, type[Day0Accounting] | type[VllmAccounting] | type[SglangAccounting]] = {
    "day0": Day0Accounting,
    "vllm": VllmAccounting,
    "sglang": SglangAccounting,
}


def accounting_for(engine: str, version: str | None = None) -> Accounting:
    if engine not in ACCOUNTINGS:
        raise InputError(f"engine {engine!r} is not known", where="--engine", hint=f"known: {', '.join(ACCOUNTINGS)}")
    return ACCOUNTINGS[engine](version)
