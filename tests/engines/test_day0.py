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


def test_several_ranks_cannot_be_started_yet(request_for: Any) -> None:
    assert launch(request_for("kimi-k3", "b300:8", "day0", tp=8)).argv == ()
