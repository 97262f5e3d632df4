"""How often the gate on baselines fires, by the true slowdown: `python benchmarks/gate_curve.py > .../gate.md`.

Time is simulated, so the delays are known exactly; the figures, the limit and the status are day0's own code.
"""

from __future__ import annotations

import math
import random
from collections import Counter

from day0.checklist.checklist import CheckSpec, Measured, conclude
from day0.checklist.figures import Timing, load_figures
from day0.checklist.probe_performance import round_values

RUNS = 500
ROUNDS = 16
REQUESTS, TOKENS = 2, 32
FIRST_SECONDS, TOKEN_SECONDS = 0.05, 0.01
ROUND_NOISE = (0.01, 0.02, 0.03, 0.05)
"""Standard deviation of the logarithm of a round's speed; every token has `TOKEN_NOISE` of its own beside it."""
TOKEN_NOISE = 0.05
SLOWDOWNS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08)
SPEC = CheckSpec("gate", "performance", "", "performance.steady", limits={"tpot_ms": {"slowdown_of_baseline": 0.05}})


def measured(source: random.Random, noise: float, slowdown: float) -> Measured:
    """One run of the server whose tokens take `TOKEN_SECONDS`, longer by `slowdown`."""
    figures = []
    for _ in range(ROUNDS):
        pace = (1 + slowdown) * math.exp(source.gauss(0, noise))
        timings = [answered(source, pace) for _ in range(REQUESTS)]
        figures.append(load_figures(timings, 1, sum(timing.arrivals[-1] for timing in timings)))
    return Measured(ROUNDS, round_values(figures))


def answered(source: random.Random, pace: float) -> Timing:
    """Arrivals of one answer at a pace."""
    now = FIRST_SECONDS * pace
    arrivals = [now]
    for _ in range(TOKENS - 1):
        now += TOKEN_SECONDS * pace * math.exp(source.gauss(0, TOKEN_NOISE))
        arrivals.append(now)
    return Timing(tuple(arrivals), TOKENS)


def statuses(noise: float, slowdown: float) -> Counter[str]:
    """Statuses of `RUNS` pairs of a baseline and a later run."""
    source = random.Random(f"{noise}/{slowdown}")
    found: Counter[str] = Counter()
    for _ in range(RUNS):
        before = measured(source, noise, 0.0).values
        found[conclude(SPEC, measured(source, noise, slowdown), before).status] += 1
    return found


def main() -> None:
    print("# The gate on baselines, by true slowdown\n")
    print(
        f"`slowdown_of_baseline: 0.05` on time per token: {ROUNDS} rounds of {REQUESTS} requests of {TOKENS} tokens in"
    )
    print(f"each run, {RUNS:,} pairs of runs a cell, simulated delays. `found` is the share of judged pairs that fail")
    print("(with a slowdown of 0% a false alarm), `skip` the share of pairs that was too noisy to judge.\n")
    print("| noise of a round | " + " | ".join(f"{slowdown:.0%} found / skip" for slowdown in SLOWDOWNS) + " |")
    print("|---" * (len(SLOWDOWNS) + 1) + "|")
    for noise in ROUND_NOISE:
        cells = []
        for slowdown in SLOWDOWNS:
            found = statuses(noise, slowdown)
            judged = found["fail"] + found["pass"]
            cells.append(f"{found['fail'] / judged:.1%} / {found['skip'] / RUNS:.1%}" if judged else "- / 100%")
        print(f"| {noise:.0%} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
