"""What our runtime holds of the weights at a time, and of packed or streamed matrices as numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from day0.plan.layout import Violation
from day0.plan.memory import RankNeed, conversion_workspace, element_size, expert_numbers
from day0.plan.settings import EngineSettings
from day0.plan.workload import Workload
from day0.profile.profile import RoutedExperts
from day0.profile.tensors import expected_tensors, packed_matrices

_FLOAT8_SIDE = 128
"""Rows and columns of a block of experts that pass through FP8."""


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of a rank: weights as they are loaded, the room that matrices are turned into, experts kept beside it."""

    weights: int
    workspace: int
    kept_experts: int


def held(need: RankNeed, settings: EngineSettings) -> Held:
    """All weights, or with `--offload` what has its place on the device and the largest of what comes and goes.

    A budget of weights goes to layers first, from the first on, and what it has left to experts, as in
    `runtime/engine/load_offloaded.py`.
    """
    workload = need.workload
    float8 = workload.expert_dtype == "fp8"  # experts pass one by one, each as numbers and as FP8
    at_once = 1 if float8 else settings.workspace_experts
    room = conversion_workspace(need.profile, need.layers, at_once, need.layout, streamed=workload.streams)
    room += max((_float8_bytes(need, spec) for spec in _routed(need)), default=0) if float8 else 0
    if not workload.streams:
        return Held(need.weights.total, room, _kept_experts(need, workload.expert_cache_bytes))
    weights, resident = _streamed(need)
    budget = max(workload.expert_cache_bytes, workload.weight_budget - resident)
    return Held(weights, room, _kept_experts(need, budget))


def _streamed(need: RankNeed) -> tuple[int, int]:
    """Bytes of weights held at a time, and those of layers that stay; experts are read as they are chosen."""
    whole, without_experts = Counter[int](), Counter[int]()
    for spec in expected_tensors(need.profile):
        if spec.layer is not None:
            whole[spec.layer] += spec.nbytes
            # biases are too small to be read by expert
            if not spec.num_experts or spec.path.endswith("bias"):
                without_experts[spec.layer] += spec.nbytes
    ends = need.weights.total - sum(whole[layer.index] for layer in need.layers)
    sizes = [without_experts[layer.index] for layer in need.layers]
    resident = 0
    for count, size in enumerate(sizes):
        if resident + size > need.workload.weight_budget:
            return ends + resident + max(sizes[count:]), resident
        resident += size
    return ends + resident, resident


def _kept_experts(need: RankNeed, budget: int) -> int:
    """Bytes of the slots that `budget` pays for, each as large as the largest expert, and no more than there are
    experts that the workspace serves (`runtime/quant/hot_experts.py`)."""
    largest = count = 0
    if not budget:
        return 0
    float8 = need.workload.expert_dtype == "fp8"
    for layer in need.layers:
        spec = layer.feed_forward
        if isinstance(spec, RoutedExperts) and (
            need.workload.streams or any(packed.num_experts for packed, _ in packed_matrices(need.profile, layer))
        ):
            numbers = expert_numbers(spec, need.profile.hidden_size, need.layout.expert_tp)
            largest = max(largest, _float8_bytes(need, spec) if float8 else numbers * element_size(need.profile))
            count += -(-spec.router.num_experts // need.layout.ep)
    return min(budget // largest, count) * largest if largest else 0


def _routed(need: RankNeed) -> Iterator[RoutedExperts]:
    for layer in need.layers:
        if isinstance(layer.feed_forward, RoutedExperts):
            yield layer.feed_forward


def _float8_bytes(need: RankNeed, spec: RoutedExperts) -> int:
    """Bytes of a rank's share of one expert as E4M3, with a byte of scale for each block (`runtime/quant/reencode.py`);
    up, down and gate have as many blocks."""
    width, hidden = -(-spec.width // need.layout.expert_tp), spec.latent_dim or need.profile.hidden_size
    blocks = -(-width // _FLOAT8_SIDE) * -(-hidden // _FLOAT8_SIDE)
    return (3 if spec.gated else 2) * (width * hidden + blocks)


def only_of_our_runtime(workload: Workload, engine: str) -> tuple[Violation, ...]:
    """What another engine's command line has no word of ours for."""
    asked = {
        "--offload": workload.streams,
        "--expert-cache-bytes": workload.expert_cache_bytes > 0,
        "--expert-dtype": workload.expert_dtype != "auto",
    }
    return tuple(
        Violation("engine", f"{option} is of day0's own runtime, and {engine} is planned for", f"leave {option} out")
        for option, given in asked.items()
        if given
    )
