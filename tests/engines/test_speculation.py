"""A plan that counts predictors also starts the engine with them."""

from __future__ import annotations

from typing import Any

import pytest

from day0.engines.table import LAUNCHERS


@pytest.mark.parametrize(("engine", "flag"), [("vllm", "--speculative-config"), ("sglang", "--speculative-algorithm")])
def test_predictors_are_counted_and_asked_for(request_for: Any, engine: str, flag: str) -> None:
    plain = request_for("deepseek-r1", "h200:8", engine, tp=8)
    ahead = request_for("deepseek-r1", "h200:8", engine, tp=8, demand={"speculate": True})
    assert ahead.plan.ranks[0].weights > plain.plan.ranks[0].weights + 10**9
    assert ahead.plan.kv_bytes_per_token == plain.plan.kv_bytes_per_token * 62 // 61
    assert flag in LAUNCHERS[engine](ahead).argv[0] and flag not in LAUNCHERS[engine](plain).argv[0]
