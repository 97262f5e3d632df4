"""All layouts of a cluster, sized and ranked: those that fit and start first, then by throughput."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from day0.plan.cluster import Cluster
from day0.plan.layout import Layout, LayoutRequest
from day0.plan.plan import Plan, Planner

Obstacle = Callable[[Layout, Cluster], str | None]
"""Why an engine cannot start a layout that may well fit, or None."""


def no_obstacle(layout: Layout, cluster: Cluster) -> str | None:
    """For whoever only asks what fits."""
    del layout, cluster
    return None


@dataclass(frozen=True, slots=True)
class Answer:
    """The best plans of `searched` layouts; `refused` counts those that broke a rule of divisibility."""

    searched: int
    refused: int
    plans: tuple[Plan, ...]

    @property
    def fits(self) -> bool | None:
        """The verdict of the best plan: True, False, or None where it cannot be said."""
        return self.plans[0].fits if self.plans else False


def search(planner: Planner, top: int, goal: str = "throughput", obstacle: Obstacle = no_obstacle) -> Answer:
    """Size every legal layout; where there is none, the refused ones are shown with their reasons.

    Plans that fit come first, of those what the engine can start, in the order of `goal`. A model that is not
    understood gets one plan, saying so.
    """
    if not planner.is_sized:
        return validate(planner, LayoutRequest())
    layouts = tuple(dict.fromkeys(planner.accounting.layouts(planner.profile, planner.cluster)))
    broken = {layout: planner.check(layout) for layout in layouts}
    legal = [layout for layout in layouts if not broken[layout]]
    plans = [planner.plan(layout, broken[layout]) for layout in (legal or layouts)]
    halted = {plan.layout: obstacle(plan.layout, planner.cluster) is not None for plan in plans}
    plans.sort(key=lambda plan: rank_key(plan, goal, is_halted=halted[plan.layout]))
    return Answer(len(layouts), len(layouts) - len(legal), tuple(plans[:top]))


def validate(planner: Planner, request: LayoutRequest) -> Answer:
    """Size the one layout that was asked for."""
    layout = planner.accounting.complete(request, planner.profile, planner.cluster.gpus)
    plan = planner.plan(layout)
    return Answer(1, int(bool(planner.check(layout))), (plan,))


def rank_key(plan: Plan, goal: str = "throughput", *, is_halted: bool = False) -> tuple[float, ...]:
    """Verdict, then rules broken, then bytes lacking, then whether it starts, then the goal, then throughput; on a draw
    what holds more."""
    verdict = {True: 0, None: 1, False: 2}[plan.fits]
    broken = 0 if plan.fits is not False else len(plan.violations)
    lacking = max(0, plan.shortfall) if plan.fits is False else 0
    speed = plan.estimate.tokens_per_s if plan.estimate else 0.0
    return verdict, broken, lacking, is_halted, GOALS[goal](plan), -speed, -(plan.max_concurrency or 0.0)


GOALS: Mapping[str, Callable[[Plan], float]] = {
    "throughput": lambda plan: -plan.estimate.tokens_per_s if plan.estimate else 0.0,
    "latency": lambda plan: plan.estimate.tpot_ms if plan.estimate else 0.0,
    "context": lambda plan: -float(plan.max_context or 0),
    "concurrency": lambda plan: -(plan.max_concurrency or 0.0),
    "fit": lambda plan: -float(min((rank.free + rank.kv_pool for rank in plan.ranks), default=0)),
}
"""What the best plan has most of: tokens per second, speed of one answer, context, requests, or bytes to spare."""
