"""Plans to launch: Kimi K3 and a dense model, on one node and on several."""

from __future__ import annotations

from typing import Any

import pytest

from day0.engines.launch import LaunchRequest
from day0.plan.accounting import accounting_for
from day0.plan.cluster import parse_cluster
from day0.plan.layout import LayoutRequest
from day0.plan.plan import Planner
from day0.plan.recipe import LaunchFacts
from day0.plan.workload import make_workload
from day0.profile.read import read_profile
from day0.source.resolve import resolve


@pytest.fixture(scope="session")
def request_for() -> Any:
    """`request_for("kimi-k3", "b300:8", "vllm", tp=8)`: the launch request of one layout."""

    def make(
        recipe: str,
        spec: str,
        engine: str,
        version: str | None = None,
        *,
        model: str = "org/model",
        facts: LaunchFacts | None = None,
        demand: dict[str, Any] | None = None,
        **sizes: int,
    ) -> LaunchRequest:
        profile = read_profile(resolve(f"recipe:{recipe}"))
        cluster = parse_cluster(spec)
        workload = make_workload(profile, **({"context": 65536} | (demand or {})))
        accounting = accounting_for(engine, version)
        planner = Planner(profile, cluster, accounting, workload)
        plan = planner.plan(accounting.complete(LayoutRequest(**sizes), profile, cluster.gpus))
        facts = facts or LaunchFacts()
        return LaunchRequest(plan, model, None, cluster, workload, version, facts, profile=profile)

    return make


def flag_values(argv: tuple[str, ...]) -> dict[str, str | bool]:
    """A command line's flags and values; a bare flag is True."""
    flags: dict[str, str | bool] = {}
    for word, following in zip(argv, (*argv[1:], "--"), strict=True):
        if word.startswith("--"):
            assert word not in flags, f"{word} is given twice"
            flags[word] = True if following.startswith("--") else following
    return flags
