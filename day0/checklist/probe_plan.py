"""Phase "startup", plans: every line of memory that a plan foresaw beside what the runtime holds."""

from __future__ import annotations

import math

from day0.checklist.checklist import Measured, NotChecked, Outcome
from day0.checklist.figures import largest
from day0.checklist.probe_runtime import RuntimeTarget
from day0.checklist.target import CheckContext

NO_PLAN = NotChecked("na", "not started by a plan: `--plan FILE` does")


def plan(context: CheckContext) -> Outcome:
    """Predicted against allocated, line by line; the lines that last from start to end.

    `plan_error` is the worst relative error. What a line of activations would need is measured under load by
    `performance.memory`.
    """
    if context.plan is None:
        return NO_PLAN
    target = context.target
    assert isinstance(target, RuntimeTarget)
    held, (rank,) = target.engine().memory, context.plan.ranks
    predicted = {
        "weights": rank.weights,
        "workspace": rank.workspace,
        "state_pool": rank.state_pool,
        "kv_pool": rank.kv_pool,
    }
    allocated = {
        "weights": held.weight_bytes,
        "workspace": held.workspace_bytes + held.expert_cache_bytes + held.relaid_bytes,
        "state_pool": held.state_bytes,
        "kv_pool": held.kv_bytes,
    }
    errors = {name: _error(predicted[name], allocated[name]) for name in predicted}
    worst = max(errors, key=lambda name: errors[name])
    return Measured(
        inspected=sum(1 for size in (*predicted.values(), *allocated.values()) if size),
        values={
            "plan_bytes": predicted,
            "allocated_bytes": allocated,
            "plan_errors": errors,
            "plan_error": largest(errors.values()),
        },
        message=f"{worst}: {predicted[worst]:,} bytes planned, {allocated[worst]:,} held" if errors[worst] else "",
        hint="`day0 plan MODEL --load FILE` says whether the file is still what is planned today",
    )


def _error(predicted: int, allocated: int) -> float:
    if not predicted:
        return math.inf if allocated else 0.0
    return abs(allocated - predicted) / predicted
