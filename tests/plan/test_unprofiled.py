"""What engines allocate unmeasured: sizes of graphs by hand, drafts of a full batch, verdicts that risks withhold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from day0.plan.layout import LayoutRequest
from day0.plan.plan import Plan, Planner
from day0.plan.unprofiled import captured_sizes, graph_bytes, sglang_captured_sizes
from day0.profile.profile import ArchitectureProfile
from tests.plan.conftest import recipe_profile

GIB = 2**30


@pytest.fixture(scope="module")
def deepseek_v4() -> ArchitectureProfile:
    return recipe_profile("deepseek-v4-pro")


def whole(planner: Planner) -> Plan:
    request = LayoutRequest(tp=planner.cluster.gpus)
    return planner.plan(planner.accounting.complete(request, planner.profile, planner.cluster.gpus))


@pytest.mark.parametrize(
    ("requests", "drafted", "sizes"), [(1, 0, 2), (32, 0, 11), (256, 0, 51), (1024, 4, 51), (32, 3, 35)]
)
def test_sizes_that_vllm_captures(requests: int, drafted: int, sizes: int) -> None:
    """32 requests: 1, 2, 4 and eight steps to 64; with three drafted tokens 256, which begins the sixteens."""
    assert captured_sizes(requests, drafted) == sizes


def test_sizes_that_sglang_captures() -> None:
    assert sglang_captured_sizes(8) == 4
    assert sglang_captured_sizes(80) == 14
    assert sglang_captured_sizes(512) == 5 + 31 + 15 + 1
    assert sglang_captured_sizes(48, drafts=True) == 8 + 12 + 3
    assert sglang_captured_sizes(300, drafts=True) == 8 + 12 + 7 + 24 + 2 + 1, "the largest is always one of them"


def test_graphs_grow_with_layers_and_sizes_and_never_below_the_allowance() -> None:
    assert graph_bytes(2, 3, 1) == (GIB, GIB)
    planned, most = graph_bytes(64, 51, 2)
    assert planned == 64 * 51 * 2 * 2**18
    assert 2.5 < most / planned < 2.7


def test_drafts_of_a_full_batch_withhold_the_verdict_and_fewer_requests_give_it(
    planner: Any, deepseek_v4: ArchitectureProfile
) -> None:
    asked = planner(deepseek_v4, "b300:8", "vllm", context=8192, speculate=True)
    asked.workload = replace(asked.workload, drafted_tokens=4, max_num_seqs=1024)
    plan = whole(asked)
    assert plan.fits is None and not plan.violations
    assert any("verifying drafts" in part and "--max-num-seqs" in part for part in plan.unsized)
    asked.workload = replace(asked.workload, max_num_seqs=32)
    assert whole(asked).fits is True


def test_scratch_counts_every_drafted_token(planner: Any, deepseek_v4: ArchitectureProfile) -> None:
    """Logits of 64 requests in float32, of one drafted token and of three."""
    held = []
    for drafted in (1, 3):
        asked = planner(deepseek_v4, "b300:8", "vllm", context=8192, speculate=True)
        asked.workload = replace(asked.workload, drafted_tokens=drafted, max_num_seqs=256)
        held.append(whole(asked).ranks[0].overhead)
    assert held[1] - held[0] == 256 * 2 * deepseek_v4.vocab_size * 4


def test_a_pool_that_the_dearest_graphs_would_empty_is_no_fit(planner: Any, deepseek_v4: ArchitectureProfile) -> None:
    """The longest context that fits leaves room for what graphs may take; a little more cannot be said."""
    asked = planner(deepseek_v4, "b300:8", "vllm", context=8192)
    share = whole(asked).ranks[0]
    pool = share.kv_pool + share.state_pool
    tight = replace(asked.workload, mem_fraction=0.9 - (pool - 5 * GIB) / share.total)
    asked.workload = tight
    plan = whole(asked)
    assert plan.fits is None and any("CUDA graphs" in part for part in plan.unsized)
