"""Times of a step from a roofline and a two-term model of communication; `docs/plan.md` has the formulas.

Compute and memory are bounds that no kernel beats, so the estimate ranks layouts and is no promise of speed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from typing import Literal

from day0.plan.cluster import Cluster
from day0.plan.memory import RankNeed, element_size
from day0.plan.mixer_sizes import mixer_flops
from day0.profile.profile import AttentionResidual, HyperConnections, RoutedExperts

Bound = Literal["memory", "compute", "comm"]

LINK_LATENCY = 5e-6
"""Seconds per step of a small collective between GPUs of a node; a ring of two takes one step, of eight three."""
NETWORK_LATENCY = 15e-6
"""The same between nodes."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """For the asked request and concurrency: time to the first token of a request alone, time per output token with
    all requests decoding, tokens/s of the whole deployment, and which of the three limits decoding."""

    ttft_ms: float
    tpot_ms: float
    tokens_per_s: float
    bound: Bound


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds one stage needs, by what limits it; memory and compute overlap, communication does not."""

    memory: float
    compute: float
    comm: float

    @property
    def total(self) -> float:
        return max(self.memory, self.compute) + self.comm


def estimate(needs: Sequence[RankNeed], cluster: Cluster) -> Estimate:
    """Times of one request's prompt, and of a decoding step in the middle of the answers.

    With stages, the requests of a replica are decoded in as many groups, one on each stage.
    """
    workload, layout = needs[0].workload, needs[0].layout
    group = max(1, -(-needs[0].sequences // layout.pp))
    context = workload.prompt + workload.decode // 2
    decode = [step_time(need, cluster, group, 1, context) for need in needs]
    prefill = [step_time(need, cluster, 1, workload.prompt, workload.prompt // 2) for need in needs]
    tpot = sum(step.total for step in decode)
    return Estimate(
        ttft_ms=round(1e3 * sum(step.total for step in prefill), 3),
        tpot_ms=round(1e3 * tpot, 3),
        tokens_per_s=round(workload.concurrency / tpot, 1),
        bound=_bound(decode),
    )


def _bound(steps: Sequence[StepTime]) -> Bound:
    sums: dict[Bound, float] = {
        "memory": sum(step.memory for step in steps),
        "compute": sum(step.compute for step in steps),
        "comm": sum(step.comm for step in steps),
    }
    return max(sums, key=lambda name: sums[name])


def step_time(need: RankNeed, cluster: Cluster, sequences: int, tokens: int, context: int) -> StepTime:
    """One rank's step: `sequences` each bring `tokens` tokens and read `context` cached ones."""
    gpu, batch = cluster.gpu, sequences * tokens
    cached = need.cache.sequence_bytes(context) + need.cache.state_bytes
    touched = _experts_touched(need, batch)
    moved = need.weights.rest + need.weights.experts * touched + sequences * cached
    experts = [layer.feed_forward for layer in need.layers if isinstance(layer.feed_forward, RoutedExperts)]
    packed = need.profile.quantization.of("routed_experts") if need.profile.quantization is not None else None
    share = experts[0].router.top_k / dealt(experts[0], need) if experts else 0.0
    dense = 2 * batch * need.weights.rest_values
    mixers = Counter(layer.mixer for layer in need.layers)
    attention = batch * sum(n * mixer_flops(mixer, context, need.layout.attention_tp) for mixer, n in mixers.items())
    routed = 2 * batch * sharing(need) * share * need.weights.expert_values
    fastest = max(gpu.flops.values()) if packed else gpu.flops["bf16"]
    compute = (dense + attention) / gpu.flops["bf16"] + routed / fastest
    return StepTime(moved / gpu.bandwidth, compute, _communication(need, cluster, batch))


def sharing(need: RankNeed) -> int:
    """Replicas of attention whose tokens meet at one rank's experts."""
    layout = need.layout
    return max(1, layout.ep * layout.expert_tp // layout.attention_tp)


def dealt(spec: RoutedExperts, need: RankNeed) -> int:
    """Experts that a layer's tokens are shared out between, second copies among them."""
    return spec.router.num_experts + need.workload.redundant_experts


def _experts_touched(need: RankNeed, batch: int) -> float:
    """Share of a rank's experts that at least one of the tokens chose, if each expert is as likely as another."""
    shares = [
        1 - (1 - layer.feed_forward.router.top_k / dealt(layer.feed_forward, need)) ** (batch * sharing(need))
        for layer in need.layers
        if isinstance(layer.feed_forward, RoutedExperts)
    ]
    return sum(shares) / len(shares) if shares else 0.0


def _communication(need: RankNeed, cluster: Cluster, batch: int) -> float:
    """Seconds of a stage's collectives: after each mixer, after each feed-forward, and the hand-over to the next."""
    layout, element = need.layout, element_size(need.profile)
    row = need.profile.hidden_size * element
    together = layout.tp // layout.attention_tp
    total = 0.0
    for layer in need.layers:
        total += all_reduce(batch * row, layout.attention_tp, cluster)
        spec = layer.feed_forward
        if isinstance(spec, RoutedExperts) and sharing(need) > 1:
            width = (spec.latent_dim or need.profile.hidden_size) * element
            rows = batch * spec.router.top_k / layout.attention_tp
            total += 2 * exchange(rows * width, layout.ep * layout.expert_tp, cluster)
        else:
            total += all_reduce(batch * together * row, layout.tp, cluster)
    if not need.is_last:
        residual = need.profile.residual
        vectors = need.layers[-1].index // residual.block_size + 2 if isinstance(residual, AttentionResidual) else 1
        vectors = residual.streams if isinstance(residual, HyperConnections) else vectors
        bandwidth = cluster.network_bandwidth if cluster.nodes > 1 else cluster.gpu.link_bandwidth
        latency = NETWORK_LATENCY if cluster.nodes > 1 else LINK_LATENCY
        total += latency + batch * row * vectors / layout.attention_tp / bandwidth
    return total


def all_reduce(nbytes: float, ranks: int, cluster: Cluster) -> float:
    """Each rank sends and receives 2 (n-1)/n of the data; latency grows with the depth of the tree."""
    if ranks == 1:
        return 0.0
    latency, bandwidth = _network(ranks, cluster)
    return latency * log2(ranks) + 2 * (ranks - 1) / ranks * nbytes / bandwidth


def exchange(nbytes: float, ranks: int, cluster: Cluster) -> float:
    """All-to-all: all but 1/n of a rank's rows go elsewhere."""
    if ranks == 1:
        return 0.0
    latency, bandwidth = _network(ranks, cluster)
    return latency * log2(ranks) + (ranks - 1) / ranks * nbytes / bandwidth


def _network(ranks: int, cluster: Cluster) -> tuple[float, float]:
    if ranks > cluster.gpus_per_node:
        return NETWORK_LATENCY, cluster.network_bandwidth
    return LINK_LATENCY, cluster.gpu.link_bandwidth
