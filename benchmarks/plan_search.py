"""Time the search over all layouts of large clusters, the profile being known.

    python benchmarks/plan_search.py [--repeat 3]

Bounds: 64 GPUs in 2 s, 1,024 in 10 s. Exits 1 where the fastest run of a case is beyond its bound.
"""

from __future__ import annotations

import argparse
import sys
import time

from day0.plan.accounting import ACCOUNTINGS, accounting_for
from day0.plan.cluster import parse_cluster
from day0.plan.plan import Planner
from day0.plan.search import Answer, search
from day0.plan.workload import make_workload
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.source.resolve import resolve

MODELS = ("kimi-k3", "deepseek-v4-pro", "deepseek-r1", "llama-3.1-8b")
BOUNDS = {"h200:8x8": 2.0, "h200:8x128": 10.0}
"""Clusters of 64 and of 1,024 GPUs, and the seconds they may take."""


def timed(profile: ArchitectureProfile, spec: str, engine: str) -> tuple[float, Answer]:
    """Seconds from the profile to ranked plans, the weight table among them."""
    started = time.perf_counter()
    workload = make_workload(profile, context=8192, concurrency=64)
    answer = search(Planner(profile, parse_cluster(spec), accounting_for(engine), workload), top=5)
    return time.perf_counter() - started, answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    late = 0
    for name in MODELS:
        profile = read_profile(resolve(f"recipe:{name}"))
        for spec, bound in BOUNDS.items():
            for engine in ACCOUNTINGS:
                runs = [timed(profile, spec, engine) for _ in range(repeat)]
                seconds, answer = min(runs, key=lambda run: run[0])
                late += seconds > bound
                mark = "!" if seconds > bound else " "
                case = f"{name:16} {spec:11} {engine:7}"
                sys.stdout.write(f"{case} {seconds:6.2f} s of {bound:3.0f}{mark} {answer.searched:5} layouts\n")
    return int(late > 0)


if __name__ == "__main__":
    sys.exit(main())
