"""The engines that a plan can be turned into a command line for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from day0.engines import day0, sglang, vllm
from day0.engines.launch import Launch, LaunchRequest

LAUNCHERS: Mapping[str, Callable[[LaunchRequest], Launch]] = {
    "day0": day0.launch,
    "vllm": vllm.launch,
    "sglang": sglang.launch,
}
