"""Our own accounting against our own engine: the plan's lines are what the runtime takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from day0.plan.cluster import parse_cluster
from day0.plan.layout import Layout, LayoutRequest, model_parts
from day0.plan.memory_day0 import Day0Accounting
from day0.plan.plan import Plan, Planner
from day0.plan.settings import EngineSettings
from day0.profile.profile import (
    ArchitectureProfile,
    HeavilyCompressedAttention,
    NoFeedForward,
    RopeSpec,
    SharedKeyValueAttention,
)

Profiles = dict[str, ArchitectureProfile]
GIB = 2**30


def only_plan(planner: Planner, **sizes: int) -> Plan:
    layout = planner.accounting.complete(LayoutRequest(**sizes), planner.profile, planner.cluster.gpus)
    return planner.plan(layout)


def compressed(plain: ArchitectureProfile, ratio: int) -> ArchitectureProfile:
    """The same with attention whose `ratio` tokens share an entry."""
    rope = RopeSpec(theta=10000.0, dim=8, layout="interleaved")
    mixer = HeavilyCompressedAttention(SharedKeyValueAttention(4, 16, 32, 2, 8, rope, 0.25, 64, 1e-6), ratio)
    layers = tuple(replace(layer, mixer=mixer, feed_forward=NoFeedForward()) for layer in plain.layers)
    return replace(plain, family="deepseek_v4", layers=layers)


def test_entries_that_tokens_share_decide_the_page_and_have_tails(
    planner: Any, small: Profiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    from day0.runtime.cache.storage import CacheStorage
    from day0.runtime.engine import memory

    profile = compressed(small["llama"], ratio=24)
    plan = only_plan(planner(profile, "h100:1", memory_gib=1.5, context=4096))
    rank = plan.ranks[0]
    monkeypatch.setattr(memory, "free_bytes", lambda device: rank.total - rank.overhead - rank.weights)
    settings = EngineSettings(max_model_len=4096, max_num_seqs=plan.settings.max_num_seqs if plan.settings else 0)
    shape = memory.shape_cache(profile, settings, torch.device("cpu"), torch.bfloat16, torch.bfloat16)
    assert shape.page_size == 24
    storage = CacheStorage(profile.layers, 3, 24, 2, torch.bfloat16, torch.bfloat16, torch.device("meta"))
    assert rank.kv_pool * 3 == storage.kv_bytes * shape.num_pages
    assert rank.state_pool * 2 == storage.state_bytes * shape.num_slots > 0


@pytest.mark.parametrize("name", ["llama", "moe", "kimi_k3"])
@pytest.mark.parametrize("fraction", [0.3, 0.9])
def test_pages_and_slots_are_those_of_the_engine(
    planner: Any, small: Profiles, name: str, fraction: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    from day0.runtime.engine import memory

    profile = small[name]
    made = planner(profile, "h100:1", memory_gib=1.5, context=4096, mem_fraction=fraction)
    plan = only_plan(made)
    rank = plan.ranks[0]
    free = rank.total - rank.overhead - rank.weights
    monkeypatch.setattr(memory, "free_bytes", lambda device: free)
    assert plan.settings is not None
    settings = EngineSettings(
        max_model_len=4096, max_num_seqs=plan.settings.max_num_seqs, mem_fraction=plan.settings.mem_fraction
    )
    shape = memory.shape_cache(profile, settings, torch.device("cpu"), torch.bfloat16, torch.bfloat16)
    page = settings.page_size * (plan.kv_bytes_per_token or 0)
    assert rank.kv_pool == shape.num_pages * page
    assert rank.state_pool == shape.num_slots * (plan.state_bytes_per_sequence or 0)
    assert plan.max_context and min(plan.max_context, 4096) == shape.max_model_len == 4096


def test_states_come_out_of_the_cache_share(planner: Any, kimi_k3: ArchitectureProfile) -> None:
    plan = only_plan(planner(kimi_k3, "h200:8x2", context=65536), tp=8, pp=2)
    for rank in plan.ranks:
        free = rank.total - rank.overhead - rank.weights
        assert rank.state_pool + rank.kv_pool <= free * EngineSettings().mem_fraction
        assert rank.workspace == 16 * 3 * 384 * 3584 * 2


def test_streamed_layers_leave_the_budget_and_one_more(planner: Any, kimi_k3: ArchitectureProfile) -> None:
    """A budget adds whole layers as far as it goes and the rest of it as experts; no time is foretold."""
    plans = [
        only_plan(planner(kimi_k3, "h200:1", context=4096, offload="disk", weight_budget=budget * GIB))
        for budget in (0, 4, 8)
    ]
    none, some, more = (plan.ranks[0] for plan in plans)
    assert [plan.fits for plan in plans] == [True] * 3 and {plan.estimate for plan in plans} == {None}
    expert = 3 * 3072 * 3584 * 2
    assert none.workspace == 16 * expert
    sizes = [rank.weights + rank.workspace for rank in (none, some, more)]
    assert sizes[0] < sizes[1] <= sizes[0] + 4 * GIB, "the largest layer stays now, and a smaller one comes and goes"
    assert 4 * GIB - expert < sizes[2] - sizes[1] < 4 * GIB + expert
    assert only_plan(planner(kimi_k3, "h200:1", context=4096)).fits is False


def test_experts_kept_as_fp8_are_half_as_large(planner: Any, kimi_k3: ArchitectureProfile) -> None:
    """The room is one expert as numbers and one as FP8; a budget keeps slots of the latter."""
    budget, width = 10 * GIB, 3072 * 3584
    demand = {"context": 4096, "expert_dtype": "fp8", "offload": "disk"}
    bare = only_plan(planner(kimi_k3, "h200:1", **demand)).ranks[0].workspace
    kept = only_plan(planner(kimi_k3, "h200:1", expert_cache_bytes=budget, **demand)).ranks[0].workspace
    each = 3 * (width + 24 * 28)
    assert bare - each >= 3 * width * 2 and (kept - bare) == budget // each * each
    refused = only_plan(planner(kimi_k3, "b300:8", "vllm", context=4096, expert_dtype="fp8"), tp=8)
    assert refused.fits is False and any("--expert-dtype" in each.fix for each in refused.violations)


@pytest.mark.parametrize("engine", ["day0", "vllm", "sglang"])
def test_what_cannot_stream_says_so(planner: Any, small: Profiles, engine: str) -> None:
    plan = only_plan(planner(small["llama"], "h100:2", engine, context=512, offload="disk"), tp=2)
    assert plan.fits is False and "--offload" in plan.violations[0].fix


def test_a_long_context_makes_short_steps(planner: Any, profiles: Profiles) -> None:
    short = only_plan(planner(profiles["llama-3.1-8b"], "h200:1", context=4096))
    long = only_plan(planner(profiles["llama-3.1-8b"], "h200:1", context=131072))
    assert short.settings and long.settings
    assert short.settings.max_batched_tokens == EngineSettings().max_num_batched_tokens
    assert 1 <= long.settings.max_batched_tokens < short.settings.max_batched_tokens
    assert all(rank.free >= 0 for rank in (*short.ranks, *long.ranks))


def test_seats_grow_with_the_demand_and_shrink_to_what_states_leave(planner: Any, kimi_k3: ArchitectureProfile) -> None:
    asked = only_plan(planner(kimi_k3, "h200:8x2", context=4096, concurrency=40), tp=8, pp=2)
    assert asked.settings and asked.settings.max_num_seqs == 40
    tight = only_plan(planner(kimi_k3, "h200:8x2", memory_gib=100, context=4096), tp=8, pp=2)
    assert tight.settings and 1 <= tight.settings.max_num_seqs < EngineSettings().max_num_seqs


def test_more_than_one_rank_is_said_to_be_for_one_host(planner: Any, kimi_k3: ArchitectureProfile) -> None:
    plan = only_plan(planner(kimi_k3, "b300:8", context=65536), tp=8)
    assert plan.fits is True
    assert any("starts its ranks on one host" in note for note in plan.notes)
    assert Day0Accounting().notes(model_parts(kimi_k3), Layout(), parse_cluster("b300:8").gpu) == ()
    spread = Layout(dp=2, expert_tp=2)
    assert "over 2 replicas" in Day0Accounting().notes(model_parts(kimi_k3), spread, parse_cluster("b300:2").gpu)[1]


@pytest.mark.parametrize(("sizes", "demand"), [({"tp": 8, "cp": 2}, {}), ({"tp": 8}, {"kv_dtype": "fp8"})])
def test_what_the_runtime_lacks_is_a_violation(
    planner: Any, kimi_k3: ArchitectureProfile, sizes: dict[str, int], demand: dict[str, str]
) -> None:
    plan = only_plan(planner(kimi_k3, "b300:8", context=65536, **demand), **sizes)
    assert plan.fits is False and "engine" in [each.rule for each in plan.violations]
