"""Settings that are tried in pairs: few combinations in which every two values meet, and the smallest that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product

Settings = Mapping[str, object]
"""One value of each axis. The first value of an axis is the one that a reference has."""
Allowed = Callable[[Settings], bool]
Pair = tuple[tuple[str, object], tuple[str, object]]


def covering(axes: Mapping[str, Sequence[object]], allowed: Allowed) -> tuple[Settings, ...]:
    """Combinations in which any two values of two axes meet, where `allowed` lets the two meet at all.

    Greedy: each combination begins with a pair that none before it has, and every other axis takes the value that
    makes most further pairs. `allowed` judges whole combinations. The reference (the first value of every axis) is
    left out. The same axes give the same combinations in the same order.
    """
    reference = {name: values[0] for name, values in axes.items()}
    missing = dict.fromkeys(_all_pairs(axes))
    found = []
    while missing:
        pair = next(iter(missing))
        row = _completed(dict(pair), axes, missing, allowed)
        missing.pop(pair)  # also where nothing can complete it: the two are not allowed to meet
        if row is not None:
            for met in _pairs(row):
                missing.pop(met, None)
            found.append(row)
    return tuple(row for row in found if row != reference)


def _all_pairs(axes: Mapping[str, Sequence[object]]) -> Iterator[Pair]:
    """Pairs with most that is unlike the reference first."""
    pairs = [
        ((one, left), (two, right))
        for one, two in combinations(axes, 2)
        for left, right in product(axes[one], axes[two])
    ]
    yield from sorted(pairs, key=lambda pair: sum(value == axes[name][0] for name, value in pair))


def _pairs(row: Settings) -> Iterator[Pair]:
    return combinations(row.items(), 2)


def _completed(
    begun: dict[str, object], axes: Mapping[str, Sequence[object]], missing: Mapping[Pair, None], allowed: Allowed
) -> dict[str, object] | None:
    """A whole combination with what has begun in it; None where none is allowed.

    Axes without a choice yet count as the reference's, so that each choice keeps a way open.
    """

    def whole(settings: Mapping[str, object]) -> dict[str, object]:
        return {name: settings.get(name, values[0]) for name, values in axes.items()}

    if not allowed(whole(begun)):
        return None
    row = dict(begun)
    for name, values in axes.items():
        if name not in row:
            fitting = [value for value in values if allowed(whole(row | {name: value}))]
            row[name] = max(fitting, key=lambda value: _new_pairs(row, (name, value), missing, tuple(axes)))
    return whole(row)


def _new_pairs(row: Settings, added: tuple[str, object], missing: Mapping[Pair, None], order: Sequence[str]) -> int:
    place = order.index(added[0])
    pairs = [(item, added) if order.index(item[0]) < place else (added, item) for item in row.items()]
    return sum(pair in missing for pair in pairs)


def smallest(settings: Settings, reference: Settings, fails: Callable[[Settings], bool], allowed: Allowed) -> Settings:
    """What of failing `settings` is needed to fail: single axes first, then pairs, then one axis less at a time.

    Every axis of the result that differs from `reference` does so for a reason, if `fails` gives the same answer
    twice.
    """
    changed = [name for name in settings if settings[name] != reference[name]]
    few = [names for count in (1, 2) if count < len(changed) for names in combinations(changed, count)]
    for names in few:
        candidate = {**reference, **{name: settings[name] for name in names}}
        if allowed(candidate) and fails(candidate):
            return candidate
    kept = dict(settings)
    for name in changed if len(changed) > 3 else ():
        candidate = {**kept, name: reference[name]}
        if allowed(candidate) and fails(candidate):
            kept = candidate
    return kept
