"""Questions beside "does it fit": the most context for so many users, the fewest GPUs that hold the demand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from day0.errors import InputError
from day0.plan.cluster import Cluster
from day0.plan.layout import Layout, LayoutRequest
from day0.plan.plan import Plan, Planner
from day0.plan.search import Answer, Obstacle, no_obstacle, search, validate

_TRIED_LAYOUTS = 12
"""Layouts whose longest context is looked for exactly: the best by a first estimate."""


def most_context(
    planner: Planner, request: LayoutRequest, top: int, goal: str = "throughput", obstacle: Obstacle = no_obstacle
) -> tuple[Planner, Answer]:
    """Plans with the longest context at which the asked requests still fit, the longest first; those that start.

    A layout's longest context is found by halving, since what a request keeps besides its tokens depends on it too.
    """
    first = planner.with_context(planner.workload.prompt + planner.workload.decode)
    if not first.is_sized:
        return planner, validate(planner, request)
    answer = validate(first, request) if not request.is_empty else search(first, 1 << 30, goal, obstacle)
    starting = [plan for plan in answer.plans if obstacle(plan.layout, planner.cluster) is None]
    candidates = sorted(starting or answer.plans, key=lambda plan: -(plan.max_context or 0))
    candidates = candidates[: max(top, _TRIED_LAYOUTS)]
    best: dict[Layout, int] = {plan.layout: _longest(first, plan) for plan in candidates if plan.fits is not False}
    if not best:
        return first, replace(answer, plans=answer.plans[:top])
    longest = planner.with_context(max(best.values()))
    ranked = sorted(best, key=lambda layout: -best[layout])[:top]
    plans = tuple(planner.with_context(best[layout]).plan(layout) for layout in ranked)
    return longest, replace(answer, plans=plans)


def _longest(planner: Planner, plan: Plan) -> int:
    """The longest context of one layout, between the request's own length and the model's limit."""
    low = planner.workload.context
    high = planner.profile.max_position or max(low, plan.max_context or low)
    while low < high:
        middle = (low + high + 1) // 2
        if planner.with_context(middle).plan(plan.layout).fits is False:
            high = middle - 1
        else:
            low = middle
    return low


def fewest_gpus(
    planner: Planner, request: LayoutRequest, top: int, goal: str = "throughput", obstacle: Obstacle = no_obstacle
) -> tuple[Planner, Answer]:
    """The smallest part of the cluster on which some layout fits, and its plans; where none does for sure, the smallest
    on which it cannot be said, and then the whole."""
    if not request.is_empty:
        raise InputError("--fewest-gpus chooses the layout itself", hint="leave --tp, --pp, --ep, --dp and --cp out")
    unsure: tuple[Planner, Answer] | None = None
    for part in _parts(planner.cluster):
        smaller = planner.with_cluster(part)
        answer = search(smaller, top, goal, obstacle)
        if answer.fits:
            return smaller, answer
        if answer.fits is None and unsure is None:
            unsure = smaller, answer
    return unsure or (planner, search(planner, top, goal, obstacle))


def _parts(cluster: Cluster) -> Iterator[Cluster]:
    """Parts of a node that people book (1, 2, 4, ... GPUs), then whole nodes."""
    count = 1
    while count < cluster.gpus_per_node:
        yield replace(cluster, gpus_per_node=count, nodes=1, notes=())
        count *= 2
    for nodes in range(1, cluster.nodes + 1):
        yield replace(cluster, nodes=nodes)
