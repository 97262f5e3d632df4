"""Whether a figure got slower than in a baseline: a limit from the noise of rounds, with stated error rates."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from statistics import NormalDist

from day0.errors import CannotSay

FALSE_ALARMS = 0.05
"""How often a figure that did not change may be called slower."""
MISSES = 0.05
"""How often a slowdown of the size that is asked about may be passed over."""
FEWEST_ROUNDS = 6
ROUNDS = "_rounds"
"""What the name of a figure ends with where its value in each round is meant."""


def ceiling(before: Sequence[float], now: Sequence[float], slowdown: float) -> float:
    """The largest geometric mean of `now` that noise alone explains, in the unit of the rounds.

    A one-sided t test on the logarithms of the rounds with pooled variance: without a change, `FALSE_ALARMS` of all
    runs lie above. Raises CannotSay where the rounds are too few or too noisy to find a slowdown of this share in
    `1 - MISSES` of all runs, or are not all positive numbers. Rounds are taken as independent and two runs as
    different by nothing but their rounds: a machine that is slow for a whole run looks like a slower model.
    """
    if min(len(before), len(now)) < FEWEST_ROUNDS:
        raise CannotSay(
            f"{len(before)} rounds in the baseline and {len(now)} now, {FEWEST_ROUNDS} of each are needed",
            hint="set rounds in the check, and write a new baseline with --save-baseline",
        )
    if not all(math.isfinite(value) and value > 0 for value in (*before, *now)):
        raise CannotSay("a round has no positive time", hint="look at the requests that were not answered")
    logs = [[math.log(value) for value in rounds] for rounds in (before, now)]
    freedom = len(before) + len(now) - 2
    squares = sum(statistics.variance(rounds) * (len(rounds) - 1) for rounds in logs)
    error = math.sqrt(squares / freedom * (1 / len(before) + 1 / len(now)))
    alarm, found = student_quantile(1 - FALSE_ALARMS, freedom), student_quantile(1 - MISSES, freedom)
    smallest = (alarm + found) * error
    if smallest > math.log1p(slowdown):
        wanted = math.ceil(max(len(before), len(now)) * (smallest / math.log1p(slowdown)) ** 2)
        raise CannotSay(
            f"too noisy: these rounds show a slowdown of {math.expm1(smallest):.1%} or more, {slowdown:.1%} is asked",
            hint=f"about {wanted} rounds in both runs, or a quieter machine",
        )
    return math.exp(statistics.fmean(logs[0]) + alarm * error)


def geometric_mean(rounds: Sequence[float]) -> float:
    """The figure that `ceiling` limits; NaN where a round has no positive time, which lies beyond every limit."""
    return statistics.geometric_mean(rounds) if rounds and min(rounds) > 0 else math.nan


def student_quantile(share: float, freedom: int) -> float:
    """Quantile of Student's t by its expansion around the normal (Abramowitz and Stegun, 26.7.5).

    Within 0.002 for shares from 0.05 to 0.95 and 6 or more degrees of freedom.
    """
    z, n = NormalDist().inv_cdf(share), freedom
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / n**power for power, term in enumerate(terms, start=1))
