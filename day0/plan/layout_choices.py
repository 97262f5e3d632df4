"""Completing a layout that was asked for in part, and enumerating the layouts of a number of ranks."""

from __future__ import annotations

from collections.abc import Iterator

from day0.plan.layout import Layout, LayoutRequest
from day0.profile.profile import ArchitectureProfile, RoutedExperts


def divisors(number: int) -> tuple[int, ...]:
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return tuple(sorted({*small, *(number // n for n in small)}))


def whole_products(gpus: int) -> Iterator[tuple[int, int, int]]:
    """All (attention_tp, dp, pp) whose product is `gpus`."""
    for pp in divisors(gpus):
        for attention_tp in divisors(gpus // pp):
            yield attention_tp, gpus // pp // attention_tp, pp


def expert_pool(profile: ArchitectureProfile, ranks: int) -> int:
    """Ranks that share one copy of the routed experts; 1 for a model without any."""
    return ranks if is_routed(profile) else 1


def is_routed(profile: ArchitectureProfile) -> bool:
    return any(isinstance(layer.feed_forward, RoutedExperts) for layer in profile.layers)


def stage_layouts(
    profile: ArchitectureProfile, tp: int, attention_tp: int, dp: int, pp: int, pool: int, *, ends_only: bool = False
) -> Iterator[Layout]:
    """One layout for each way to deal the experts over `pool` ranks; `ends_only` takes none sliced and all sliced."""
    lots = divisors(pool)
    if ends_only:
        lots = tuple(dict.fromkeys((1, pool)))
    for ep in lots:
        yield Layout(tp, pp, ep, dp, 1, attention_tp, pool // ep)


def complete_plain(request: LayoutRequest, profile: ArchitectureProfile, gpus: int) -> Layout:
    """A request where tp x dp x pp are the GPUs and all ranks of a stage share the experts (vLLM's words).

    What was not asked for is 1, except tp, which takes the GPUs that are left.
    """
    pp, dp = request.pp or 1, request.dp or 1
    attention_tp = request.attention_tp or request.tp or max(1, gpus // (pp * dp))
    return fill(profile, request, request.tp or attention_tp, attention_tp, dp, pp, dp * attention_tp)


def fill(
    profile: ArchitectureProfile, request: LayoutRequest, tp: int, attention_tp: int, dp: int, pp: int, ranks: int
) -> Layout:
    """The layout with `ranks` sharing the experts; whole lots as asked, each cut over what is left."""
    ep = request.ep or 1
    pool = expert_pool(profile, ranks)
    return Layout(tp, pp, ep, dp, request.cp or 1, attention_tp, max(1, pool // ep))
