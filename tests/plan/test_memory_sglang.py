from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from day0.plan.layout import Layout, LayoutRequest
from day0.plan.memory import LayerCache, PlaneCache
from day0.plan.memory_sglang import STATE_SLOTS_PER_REQUEST, SglangAccounting, running_requests, windowed_bytes
from day0.plan.plan import Plan, Planner
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.source.model_files import ModelFiles

Profiles = dict[str, ArchitectureProfile]
GIB = 2**30


def only_plan(planner: Planner, **sizes: int) -> Plan:
    return planner.plan(planner.accounting.complete(LayoutRequest(**sizes), planner.profile, planner.cluster.gpus))


@pytest.mark.parametrize(
    ("asked", "gpus", "layout"),
    [
        ({"tp": 8}, 8, Layout(tp=8, attention_tp=8, expert_tp=8)),
        ({"tp": 8, "ep": 4}, 8, Layout(tp=8, ep=4, attention_tp=8, expert_tp=2)),
        ({"tp": 8, "dp": 8, "ep": 8}, 8, Layout(tp=8, ep=8, dp=8, attention_tp=1)),
        ({"tp": 8, "dp": 2}, 16, Layout(tp=8, dp=2, attention_tp=8, expert_tp=8)),
        ({"dp": 4}, 8, Layout(tp=8, dp=4, attention_tp=2, expert_tp=8)),
        ({"tp": 16, "dp": 2, "pp": 2, "ep": 16}, 32, Layout(tp=16, pp=2, ep=16, dp=2, attention_tp=8)),
        ({"tp": 8, "dp": 2, "attention_tp": 4}, 8, Layout(tp=8, dp=2, attention_tp=4, expert_tp=8)),
    ],
)
def test_dp_means_attention_replicas_inside_tp_or_whole_replicas(
    kimi_k3: ArchitectureProfile, asked: dict[str, int], gpus: int, layout: Layout
) -> None:
    assert SglangAccounting().complete(LayoutRequest(**asked), kimi_k3, gpus) == layout


def test_a_dense_model_has_whole_replicas(profiles: Profiles) -> None:
    layout = SglangAccounting().complete(LayoutRequest(dp=4), profiles["llama-3.1-8b"], 8)
    assert layout == Layout(tp=2, dp=4, attention_tp=2)


def test_whole_replicas_each_hold_all_experts(planner: Any, profiles: Profiles) -> None:
    moe = profiles["qwen3-30b-a3b"]
    shared = only_plan(planner(moe, "h100:8", "sglang", context=8192), tp=8, dp=8, ep=8)
    replicas = only_plan(planner(moe, "h100:8", "sglang", context=8192), tp=1, dp=8)
    assert shared.weights_gib_per_gpu and replicas.weights_gib_per_gpu
    assert replicas.weights_gib_per_gpu > 50 and shared.weights_gib_per_gpu < 12


def test_the_pool_is_the_static_fraction_less_weights(planner: Any, profiles: Profiles) -> None:
    plan = only_plan(planner(profiles["llama-3.1-8b"], "h100:1", "sglang", context=8192, mem_fraction=0.8), tp=1)
    rank = plan.ranks[0]
    at_start = rank.total - GIB // 4
    assert rank.weights + rank.kv_pool == pytest.approx(0.8 * at_start, abs=131_072)
    assert plan.settings and plan.settings.mem_fraction == 0.8


def test_the_default_fraction_reserves_for_chunks_and_graphs(planner: Any, profiles: Profiles) -> None:
    plan = only_plan(planner(profiles["llama-3.1-8b"], "h100:1", "sglang", context=8192), tp=1)
    reserve = 512 + 1.5 * 8192 + 2 * 256 + 1024 / 8
    assert plan.settings
    assert plan.settings.mem_fraction == pytest.approx(1 - reserve * 2**20 / plan.ranks[0].total, abs=1e-3)


def test_states_take_their_ratio_and_three_slots_a_request(planner: Any, kimi_k3: ArchitectureProfile) -> None:
    plan = only_plan(planner(kimi_k3, "b300:8", "sglang", context=65536), tp=8, ep=8)
    rank = plan.ranks[0]
    share = rank.state_pool / (rank.state_pool + rank.kv_pool)
    assert share == pytest.approx(0.9 / 1.9, rel=0.01)
    slots = rank.state_pool // (449_372_160 // 8)
    assert plan.max_concurrency is not None and plan.max_concurrency <= slots // STATE_SLOTS_PER_REQUEST
    assert plan.settings and plan.settings.state_slots is None


def test_more_requests_than_the_ratio_allows_ask_for_slots_by_number(
    planner: Any, kimi_k3: ArchitectureProfile
) -> None:
    usual = only_plan(planner(kimi_k3, "b300:8", "sglang", context=2048), tp=8, ep=8)
    assert usual.max_concurrency
    wanted = int(usual.max_concurrency) + 40
    plan = only_plan(planner(kimi_k3, "b300:8", "sglang", context=2048, concurrency=wanted), tp=8, ep=8)
    assert plan.settings and plan.settings.state_slots == STATE_SLOTS_PER_REQUEST * wanted
    assert plan.fits is True


def test_the_request_table_grows_with_requests_and_context(planner: Any, profiles: Profiles) -> None:
    llama = profiles["llama-3.1-8b"]
    small = only_plan(planner(llama, "h100:1", "sglang", context=1024, max_num_seqs=100), tp=1).ranks[0]
    large = only_plan(planner(llama, "h100:1", "sglang", context=101024, max_num_seqs=100), tp=1).ranks[0]
    assert large.overhead - small.overhead == 100 * 100_000 * 4


def test_a_fraction_too_high_leaves_no_room_for_activations(planner: Any, profiles: Profiles) -> None:
    plan = only_plan(planner(profiles["llama-3.1-8b"], "h100:1", "sglang", context=8192, mem_fraction=0.99), tp=1)
    assert plan.fits is False and plan.violations[0].rule == "memory"


def test_drafted_states_come_out_of_the_pools(planner: Any, shared: Path) -> None:
    """A hybrid that speculates keeps four more states for each running request, and less cache for it."""
    path = shared / "model_configs" / "Qwen--Qwen3.5-397B-A17B" / "config.json"
    config = json.loads(path.read_text())
    profile = read_profile(ModelFiles("m", None, "config", shared, config, "config.json", None, (), (), {}))
    plans = [
        planner(profile, "b300:8", "sglang", context=8192, max_num_seqs=seqs, mem_fraction=0.8, speculate=True).plan(
            Layout(tp=8, attention_tp=8, ep=8)
        )
        for seqs in (16, 256)
    ]
    few, many = (plan.ranks[0] for plan in plans)
    assert many.state_pool > few.state_pool and many.kv_pool < few.kv_pool
    pools = [rank.state_pool + rank.kv_pool for rank in (few, many)]
    assert abs(pools[0] - pools[1]) < 2 * plans[0].state_bytes_per_sequence, "only shared out otherwise"


def test_pending_rows_ring_each_page_of_the_windowed_pool() -> None:
    """DeepSeek-V4's layers of ratio 128: a window of 128 tokens of 584 bytes, and 128 pending rows of 4,096."""
    layer = LayerCache((PlaneCache(584, window=128), PlaneCache(4096, window=128, pending=True)))
    assert windowed_bytes(layer, speculate=False) == 584 + 4096
    assert windowed_bytes(layer, speculate=True) == 584 + 2 * 4096
    quarter = LayerCache((PlaneCache(584, window=128), PlaneCache(10240, window=8, pending=True)))
    assert windowed_bytes(quarter, speculate=False) == 584 + 10240 * 8 // 128


def test_drafted_states_are_set_aside_for_every_request_that_may_run(planner: Any, shared: Path) -> None:
    """48 requests where none are asked for, whatever the demand is."""
    config = json.loads((shared / "model_configs/Qwen--Qwen3.5-397B-A17B/config.json").read_text())
    profile = read_profile(ModelFiles("test", None, "config", shared, config, "config.json", None, (), (), {}))
    few, many = (
        planner(profile, "h200:8", "sglang", mem_fraction=0.8, speculate=True, max_num_seqs=seqs) for seqs in (None, 96)
    )
    layout = few.accounting.complete(LayoutRequest(tp=8), profile, 8)
    rank, more = (each.plan(layout).ranks[0] for each in (few, many))
    state = few.plan(layout).state_bytes_per_sequence
    assert state and running_requests(few.needs(layout, few.table)[0]) == 48
    assert rank.kv_pool - more.kv_pool == pytest.approx(4 * 48 * state / 1.9, rel=0.01), "the rest is shared out"
