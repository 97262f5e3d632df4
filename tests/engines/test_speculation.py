"""A plan that counts predictors also starts the engine with them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from day0.engines.table import LAUNCHERS
from day0.plan.accounting import accounting_for
from day0.plan.layout import model_parts

from .conftest import flag_values


@pytest.mark.parametrize(("engine", "flag"), [("vllm", "--speculative-config"), ("sglang", "--speculative-algorithm")])
def test_predictors_are_counted_and_asked_for(request_for: Any, engine: str, flag: str) -> None:
    plain = request_for("deepseek-r1", "h200:8", engine, tp=8)
    ahead = request_for("deepseek-r1", "h200:8", engine, tp=8, demand={"speculate": True})
    assert ahead.plan.ranks[0].weights > plain.plan.ranks[0].weights + 10**9
    assert ahead.plan.kv_bytes_per_token == plain.plan.kv_bytes_per_token * 62 // 61
    assert flag in LAUNCHERS[engine](ahead).argv[0] and flag not in LAUNCHERS[engine](plain).argv[0]


@pytest.mark.parametrize(("asked", "vllm", "sglang"), [(None, 1, 3), (2, 2, 2)])
def test_the_engine_drafts_as_many_tokens_as_were_counted(
    request_for: Any, asked: int | None, vllm: int, sglang: int
) -> None:
    demand = {"speculate": True, "drafted_tokens": asked}
    flags = {
        engine: flag_values(
            LAUNCHERS[engine](request_for("deepseek-r1", "h200:8", engine, tp=8, demand=demand)).argv[0]
        )
        for engine in ("vllm", "sglang")
    }
    told = json.loads(str(flags["vllm"]["--speculative-config"]))
    assert told == {"method": "mtp", "num_speculative_tokens": vllm}
    assert flags["sglang"]["--speculative-num-steps"] == str(sglang)
    assert flags["sglang"]["--speculative-num-draft-tokens"] == str(sglang + 1)
    assert flags["sglang"]["--speculative-eagle-topk"] == "1"


def test_predictors_run_in_whole_rounds(request_for: Any) -> None:
    """Three predictors draft one to three tokens, or six; four are refused."""
    request = request_for("deepseek-r1", "h200:8", "vllm", tp=8)
    assert request.profile is not None and request.profile.mtp is not None
    profile = replace(request.profile, mtp=replace(request.profile.mtp, depths=3))
    accounting = accounting_for("vllm")
    broken = {
        drafted: accounting.check(
            model_parts(profile),
            request.plan.layout,
            replace(request.workload, speculate=True, drafted_tokens=drafted),
        )
        for drafted in (2, 3, 4, 6)
    }
    assert [drafted for drafted, found in broken.items() if found] == [4]
    assert broken[4][0].rule == "engine-drafts" and "multiple of 3" in broken[4][0].fix


@pytest.mark.parametrize(("version", "refused"), [("0.26.0", True), ("0.32.0", False), (None, False)])
def test_predictors_beside_stages_need_a_version_that_builds_them(
    request_for: Any, version: str | None, refused: bool
) -> None:
    demand = {"speculate": True, "context": 8192}
    plan = request_for("deepseek-r1", "h200:8x2", "vllm", version, tp=8, pp=2, demand=demand).plan
    assert ("engine-drafts" in [each.rule for each in plan.violations]) is refused
