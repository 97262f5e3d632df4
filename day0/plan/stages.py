"""Cutting the layers into pipeline stages of even cost, with the input table on the first and the head on the last."""

from __future__ import annotations

from collections.abc import Sequence


def balance(costs: Sequence[int], first: int, last: int, stages: int) -> tuple[range, ...]:
    """Contiguous, non-empty stages whose dearest is as cheap as can be.

    `costs` are bytes per layer; `first` and `last` weigh on the ends besides. The least possible maximum is found by
    bisection; stages are then filled from the front up to it.
    """
    assert 1 <= stages <= len(costs), "a stage needs a layer"
    loads = list(costs)
    loads[0] += first
    loads[-1] += last
    low, high = max(*loads, -(-sum(loads) // stages)), sum(loads)
    while low < high:
        middle = (low + high) // 2
        if _fill(loads, middle, stages) is None:
            low = middle + 1
        else:
            high = middle
    filled = _fill(loads, low, stages)
    assert filled is not None
    return filled


def _fill(loads: Sequence[int], limit: int, stages: int) -> tuple[range, ...] | None:
    """Fill stages in order up to `limit`, leaving a layer for each stage to come; None if that takes too many."""
    cuts: list[range] = []
    start, load = 0, 0
    for index, cost in enumerate(loads):
        reserved = len(loads) - index < stages - len(cuts)
        if index > start and (load + cost > limit or reserved):
            cuts.append(range(start, index))
            start, load = index, 0
            if len(cuts) == stages:
                return None
        load += cost
    cuts.append(range(start, len(loads)))
    return tuple(cuts) if len(cuts) == stages else None
