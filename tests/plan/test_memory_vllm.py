"""vLLM's accounting: block arithmetic by hand, and figures that real servers printed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from day0.plan.layout import LayoutRequest
from day0.plan.memory import LayerCache, PlaneCache, RankCache
from day0.plan.memory_vllm import VllmAccounting, absorbed_elements
from day0.plan.plan import Plan, Planner
from day0.plan.vllm_blocks import Demand, blocks_of
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.source.model_files import ModelFiles

Profiles = dict[str, ArchitectureProfile]
GIB = 2**30


def layer(token_bytes: int, state_bytes: int = 0, window: int | None = None) -> LayerCache:
    return LayerCache((PlaneCache(token_bytes, window),) if token_bytes else (), state_bytes)


def only_plan(planner: Planner, **sizes: int) -> Plan:
    return planner.plan(planner.accounting.complete(LayoutRequest(**sizes), planner.profile, planner.cluster.gpus))


def test_one_kind_of_layer_makes_small_blocks() -> None:
    cache = RankCache((layer(100, 0),) * 4)
    capacity, block = blocks_of(cache, 640_000, Demand(1000, 2048))
    assert block == 16 * 400
    assert (capacity.blocks, capacity.block_tokens, capacity.fixed_blocks) == (100, 16, 0)
    assert capacity.sequences(1600) == 1.0


def test_a_block_grows_until_it_holds_a_state_and_kinds_are_grouped() -> None:
    """Two attention layers, five state layers: groups of two, so one of attention and three of state (one padded)."""
    cache = RankCache((layer(100, 0),) * 2 + (layer(0, 30_000),) * 5)
    capacity, block = blocks_of(cache, 10_000_000, Demand(1000, 2048))
    assert capacity.block_tokens == 304, "30,000 bytes are 300 tokens, in steps of 16"
    assert block == 304 * 100 * 2
    assert capacity.fixed_blocks == 2 * 3 and capacity.groups == 1
    assert capacity.sequences(1000) == capacity.blocks / (4 + 6)  # type: ignore[operator]


def test_kinds_of_nearly_the_same_number_share_one_group_size() -> None:
    cache = RankCache((layer(100, 0),) * 12 + (layer(0, 1_600),) * 13)
    capacity, block = blocks_of(cache, 10_000_000, Demand(1000, 2048))
    assert block == 16 * 100 * 13 and capacity.fixed_blocks == 2


def test_latent_hybrids_step_by_128_tokens(planner: Any, kimi_k3: ArchitectureProfile) -> None:
    """At tp 8 a state is 814,080 bytes and a latent token 1,152: 707 tokens, 768 in steps of 128."""
    plan = only_plan(planner(kimi_k3, "b300:8", "vllm", context=131072), tp=8, ep=8)
    block = 768 * 1152 * 24
    assert (plan.ranks[0].kv_pool + plan.ranks[0].state_pool) % block == 0
    assert plan.ranks[0].state_pool == 6 * block, "69 state layers are three groups of 24, two blocks each"


def test_windows_take_fixed_blocks() -> None:
    cache = RankCache((layer(100, window=128),) * 3 + (layer(100, 0),))
    capacity, _ = blocks_of(cache, 10_000_000, Demand(100_000, 2048))
    assert capacity.fixed_blocks == 3 * (-(-(127 + 2048) // 16) + 1)
    short, _ = blocks_of(cache, 10_000_000, Demand(160, 2048))
    assert short.fixed_blocks == 3 * (10 + 1)


def test_a_stage_of_states_only_counts_sequences() -> None:
    capacity, size = blocks_of(RankCache((layer(0, 1000),) * 3), 60_500, Demand(1000, 2048))
    assert capacity.slots == 10 and size == 6000
    assert capacity.context(10) is None and capacity.context(11) == 0


def test_absorbed_copies_and_padded_slices_are_in_the_weights(planner: Any, kimi_k3: ArchitectureProfile) -> None:
    kimi_k3 = replace(kimi_k3, vision=None)  # which vLLM cuts and we do not
    whole = only_plan(planner(kimi_k3, "b300:8", "vllm", context=65536), tp=8, ep=8)
    sliced = only_plan(planner(kimi_k3, "b300:8", "vllm", "0.30.0", context=65536), tp=8)
    newer = only_plan(planner(kimi_k3, "b300:8", "vllm", "0.32.0", context=65536), tp=8)
    ours = only_plan(planner(kimi_k3, "b300:8", "day0", context=65536), tp=8, ep=8)
    copies = 24 * (96 // 8) * (128 + 128) * 512 * 2
    assert whole.ranks[0].weights - ours.ranks[0].weights == copies
    assert sum(absorbed_elements(layer, 8) for layer in kimi_k3.layers) * 2 == copies
    experts = 92 * 896 * 3 * 3072 * (3584 // 2 + 3584 // 32) // 8
    assert sliced.ranks[0].weights - whole.ranks[0].weights == experts // 3, "384 columns become 512"
    assert newer.ranks[0].weights == whole.ranks[0].weights, "384 columns are three times 128"


def test_experts_are_all_dealt_or_all_sliced(planner: Any, kimi_k3: ArchitectureProfile) -> None:
    plan = only_plan(planner(kimi_k3, "b300:8", "vllm", context=65536), tp=8, ep=4)
    (violation,) = [each for each in plan.violations if each.rule == "engine-experts"]
    assert "--ep 1 or --ep 8" in violation.fix


@pytest.mark.parametrize(("version", "counted"), [("0.11.0", False), ("0.21.0", True), ("0.32.0", True), (None, True)])
def test_graphs_count_inside_the_share_from_0_21(version: str | None, counted: bool) -> None:
    assert VllmAccounting(version).counts_graphs is counted


def test_context_parallelism_multiplies_the_tokens(planner: Any, kimi_k3: ArchitectureProfile) -> None:
    alone = only_plan(planner(kimi_k3, "b300:8", "vllm", context=262144), tp=8, ep=8)
    spread = only_plan(planner(kimi_k3, "b300:8", "vllm", context=262144), tp=8, ep=8, cp=8)
    assert spread.max_concurrency and alone.max_concurrency
    assert 6 < spread.max_concurrency / alone.max_concurrency < 8, "state does not shrink with it"


OBSERVED = [
    # model, gpu GiB, tp, version, flags, weights GiB, peak GiB, pool GiB: llm-d-planner and vLLM threads
    ("Qwen--Qwen3-0.6B", 79.18, 1, "0.11.0", {"max_num_seqs": 1024}, 1.12, 5.56, 64.45),
    ("Qwen--Qwen3-32B", 79.18, 1, "0.11.0", {"max_num_seqs": 1024}, 61.03, 5.64, 4.45),
    ("Qwen--Qwen3-32B", 79.18, 2, "0.11.0", {"max_num_seqs": 1024}, 30.59, 5.64, 34.49),
    ("meta-llama--Meta-Llama-3.1-8B", 23.58, 1, "0.6.4", {"max_batched_tokens": 29000}, 14.99, 2.99, 2.89),
]


@pytest.mark.parametrize(("model", "memory", "tp", "version", "flags", "weights", "peak", "pool"), OBSERVED)
def test_figures_that_servers_printed(
    planner: Any, shared: Path, model: str, memory: float, tp: int, version: str, flags: dict[str, int],
    weights: float, peak: float, pool: float,
) -> None:  # fmt: skip
    config = json.loads((shared / "model_configs" / model / "config.json").read_text())
    profile = read_profile(ModelFiles(model, None, "config", shared, config, "config.json", None, (), (), {}))
    plan = only_plan(planner(profile, f"h100:{tp}", "vllm", version, memory_gib=memory, context=16000, **flags), tp=tp)
    assert plan.weights_gib_per_gpu == pytest.approx(weights, rel=0.01)
    assert plan.ranks[0].activations / GIB == pytest.approx(peak, rel=0.03)
    assert plan.kv_gib_per_gpu == pytest.approx(pool, abs=0.3)
