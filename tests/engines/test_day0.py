from __future__ import annotations

import importlib
import inspect
from typing import Any

from day0.engines.day0 import FLAGS, launch

from .conftest import flag_values


def test_the_flags_are_options_of_serve() -> None:
    parameters = inspect.signature(importlib.import_module("day0.cli.serve").command).parameters
    for flag in FLAGS:
        assert flag.name.removeprefix("--").replace("-", "_") in parameters


def test_one_rank_is_one_command(request_for: Any) -> None:
    request = request_for("llama-3.1-8b", "h100:1", "day0", demand={"context": 8192, "kv_dtype": "bf16"})
    (argv,) = launch(request).argv
    assert argv[:3] == ("day0", "serve", "org/model")
    flags = flag_values(argv)
    assert (flags["--max-model-len"], flags["--kv-dtype"]) == ("8192", "bfloat16")
    assert flags["--max-num-batched-tokens"] == str(request.plan.settings.max_batched_tokens)


def test_ranks_of_one_host_are_one_command(request_for: Any) -> None:
    (argv,) = launch(request_for("kimi-k3", "b300:8", "day0", tp=8, ep=8)).argv
    flags = flag_values(argv)
    assert (flags["--tp"], flags["--ep"]) == ("8", "8")
    assert not {"--pp", "--dp"} & flags.keys()


def test_several_hosts_are_not_started(request_for: Any) -> None:
    made = launch(request_for("kimi-k3", "b300:8x2", "day0", tp=8, pp=2))
    assert made.argv == () and "16 ranks" in made.notes[0]


def test_whole_replicas_on_several_hosts_are_a_server_each(request_for: Any) -> None:
    made = launch(request_for("llama-3.1-8b", "h100:8x2", "day0", tp=8, dp=2, demand={"context": 8192}))
    (argv,) = made.argv
    assert made.servers == 2 and flag_values(argv)["--tp"] == "8" and "--dp" not in argv


def test_what_our_runtime_alone_is_told_is_passed_on(request_for: Any) -> None:
    demand = {
        "context": 8192, "offload": "disk", "weight_budget": 4 << 30, "expert_cache_bytes": 1 << 30,
        "expert_dtype": "fp8",
    }  # fmt: skip
    (argv,) = launch(request_for("kimi-k3", "h200:1", "day0", demand=demand)).argv
    flags = flag_values(argv)
    assert (flags["--offload"], flags["--weight-budget"]) == ("disk", str(4 << 30))
    assert (flags["--expert-cache-bytes"], flags["--expert-dtype"]) == (str(1 << 30), "fp8")
