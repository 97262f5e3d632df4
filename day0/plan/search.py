"""All layouts of a cluster, sized and ranked: those that fit first, then by throughput."""

from __future__ import annotations

from dataclasses import dataclass

from day0.plan.layout import LayoutRequest
from day0.plan.plan import Plan, Planner


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


def search(planner: Planner, top: int) -> Answer:
    """Size every legal layout; where there is none, the refused ones are shown with their reasons.

    A model that is not understood gets one plan, which says so.
    """
    if not planner.is_sized:
        return validate(planner, LayoutRequest())
    layouts = tuple(dict.fromkeys(planner.accounting.layouts(planner.profile, planner.cluster)))
    broken = {layout: planner.check(layout) for layout in layouts}
    legal = [layout for layout in layouts if not broken[layout]]
    plans = [planner.plan(layout, broken[layout]) for layout in (legal or layouts)]
    plans.sort(key=rank_key)
    return Answer(len(layouts), len(layouts) - len(legal), tuple(plans[:top]))


def validate(planner: Planner, request: LayoutRequest) -> Answer:
    """Size the one layout that was asked for."""
    layout = planner.accounting.complete(request, planner.profile, planner.cluster.gpus)
    plan = planner.plan(layout)
    return Answer(1, int(bool(planner.check(layout))), (plan,))


def rank_key(plan: Plan) -> tuple[int, int, int, float, float]:
    """Verdict, then rules broken, then bytes lacking, then throughput; on a draw the one that holds more requests."""
    verdict = {True: 0, None: 1, False: 2}[plan.fits]
    speed = plan.estimate.tokens_per_s if plan.estimate else 0.0
    broken = 0 if plan.fits is not False else len(plan.violations)
    lacking = max(0, plan.shortfall) if plan.fits is False else 0
    return verdict, broken, lacking, -speed, -(plan.max_concurrency or 0.0)
