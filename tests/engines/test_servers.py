"""Which layouts are several servers, and what the engines make of them."""

from __future__ import annotations

from typing import Any

import pytest

from day0.engines.servers import separate_servers
from day0.engines.table import LAUNCHERS, OBSTACLES
from day0.plan.cluster import parse_cluster
from day0.plan.layout import Layout

from .conftest import flag_values

WHOLE = {"tp": 8, "attention_tp": 8, "expert_tp": 8}


@pytest.mark.parametrize(
    ("spec", "layout", "servers"),
    [
        ("h200:8", Layout(dp=4, tp=2, attention_tp=2), 1),
        ("h200:8x2", Layout(dp=4, tp=4, attention_tp=4), 2),
        ("h200:8x4", Layout(dp=2, pp=2, **WHOLE), 2),
        ("h200:8x2", Layout(tp=16, attention_tp=16), None),
        ("h200:8x2", Layout(dp=2, tp=8, attention_tp=8, ep=16), None),
        ("h200:8x2", Layout(dp=2, tp=16, attention_tp=8, expert_tp=16), None),
        ("gb200:4x3", Layout(dp=2, pp=3, tp=2, attention_tp=2), None),
    ],
)
def test_servers_are_whole_replicas_on_whole_nodes(spec: str, layout: Layout, servers: int | None) -> None:
    assert separate_servers(layout, parse_cluster(spec)) == servers


def test_vllm_joins_replicas_itself_where_nodes_hold_whole_ones(request_for: Any) -> None:
    demand = {"context": 8192}
    joined = LAUNCHERS["vllm"](request_for("llama-3.1-8b", "h100:8x2", "vllm", tp=8, dp=2, demand=demand))
    assert joined.servers == 1 and flag_values(joined.argv[0])["--data-parallel-size"] == "2"
    apart = LAUNCHERS["vllm"](request_for("llama-3.1-8b", "h100:8x4", "vllm", tp=8, pp=2, dp=2, demand=demand))
    assert (apart.servers, apart.nodes) == (2, 2) and "--data-parallel-size" not in apart.argv[0]


@pytest.mark.parametrize("engine", sorted(OBSTACLES))
def test_what_has_no_obstacle_has_a_command_line(request_for: Any, engine: str) -> None:
    """Whole replicas over nodes that they fill, and over nodes that they do not."""
    for spec, sizes in (("h100:8x2", {"tp": 8, "dp": 2}), ("gb200:4x3", {"tp": 2, "pp": 3, "dp": 2})):
        request = request_for("llama-3.1-8b", spec, engine, demand={"context": 8192}, **sizes)
        obstacle = OBSTACLES[engine](request.plan.layout, request.cluster)
        launch = LAUNCHERS[engine](request)
        assert bool(launch.argv) is (obstacle is None)
        assert obstacle is None or obstacle in launch.notes
