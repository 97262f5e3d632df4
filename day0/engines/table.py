"""The engines that a plan can be turned into a command line for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from day0.engines import day0, sglang, vllm
from day0.engines.launch import Launch, LaunchRequest
from day0.plan.cluster import Cluster
from day0.plan.layout import Layout

LAUNCHERS: Mapping[str, Callable[[LaunchRequest], Launch]] = {
    "day0": day0.launch,
    "vllm": vllm.launch,
    "sglang": sglang.launch,
}

OBSTACLES: Mapping[str, Callable[[Layout, Cluster], str | None]] = {
    "day0": day0.obstacle,
    "vllm": vllm.obstacle,
    "sglang": sglang.obstacle,
}
"""Why an engine cannot start a layout on a cluster, or None."""
