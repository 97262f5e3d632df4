from __future__ import annotations

from typing import Any

import pytest

from day0.plan.cluster import parse_cluster
from day0.plan.estimate import all_reduce, exchange, step_time
from day0.plan.layout import LayoutRequest
from day0.plan.memory import RankNeed
from day0.plan.mixer_sizes import mixer_flops
from day0.plan.plan import Plan, Planner
from day0.profile.profile import ArchitectureProfile
from day0.profile.tensors import expected_tensors

from .conftest import SMALL_LLAMA, profile_of

Profiles = dict[str, ArchitectureProfile]


def only_plan(planner: Planner, **sizes: int) -> Plan:
    return planner.plan(planner.accounting.complete(LayoutRequest(**sizes), planner.profile, planner.cluster.gpus))


def only_need(planner: Planner, **sizes: int) -> RankNeed:
    layout = planner.accounting.complete(LayoutRequest(**sizes), planner.profile, planner.cluster.gpus)
    return planner.needs(layout, planner.table)[0]  # type: ignore[arg-type]


def test_decoding_alone_reads_the_weights_once(planner: Any, profiles: Profiles) -> None:
    """Llama 3.1 8B on one H100: 16.06 GB less the input table, at 3.35 TB/s, is 4.5 ms a token."""
    plan = only_plan(planner(profiles["llama-3.1-8b"], "h100:1", "vllm", context=8192))
    assert plan.estimate and plan.estimate.bound == "memory"
    stored = 8_030_261_248 - 128256 * 4096
    assert plan.estimate.tpot_ms == pytest.approx(1e3 * 2 * stored / 3.35e12, rel=0.05)


def test_a_prompt_is_bound_by_arithmetic(planner: Any, profiles: Profiles) -> None:
    plan = only_plan(planner(profiles["llama-3.1-8b"], "h100:1", "vllm", context=8192, prompt=4096, decode=1))
    assert plan.estimate
    matrices = 2 * 4096 * (8_030_261_248 - 128256 * 4096)
    attention = 4096 * 32 * 4 * 4096 * 2048
    assert plan.estimate.ttft_ms == pytest.approx(1e3 * (matrices + attention) / 989e12, rel=0.01)


def test_more_requests_share_the_weights(planner: Any, profiles: Profiles) -> None:
    one = only_plan(planner(profiles["llama-3.1-8b"], "h100:1", "vllm", context=8192)).estimate
    many = only_plan(planner(profiles["llama-3.1-8b"], "h100:1", "vllm", context=8192, concurrency=32)).estimate
    assert one and many
    assert many.tokens_per_s > 10 * one.tokens_per_s and many.tpot_ms > one.tpot_ms


def test_a_token_touches_only_its_experts(planner: Any, kimi_k3: ArchitectureProfile) -> None:
    made = planner(kimi_k3, "b300:8", "vllm", context=8192)
    need = only_need(made, tp=8, ep=8)
    one = step_time(need, made.cluster, 1, 1, 100).memory
    crowd = step_time(need, made.cluster, 10_000, 1, 100).memory
    rest = need.weights.rest / made.cluster.gpu.bandwidth
    experts = need.weights.experts / made.cluster.gpu.bandwidth
    assert one == pytest.approx(rest + experts * 16 / 896, rel=0.02)
    assert crowd > rest + 0.99 * experts


def test_communication_grows_with_ranks_and_with_distance() -> None:
    cluster = parse_cluster("h200:8x2")
    assert all_reduce(1e6, 1, cluster) == exchange(1e6, 1, cluster) == 0.0
    inside, outside = all_reduce(1e9, 8, cluster), all_reduce(1e9, 16, cluster)
    assert inside == pytest.approx(2 * 7 / 8 * 1e9 / 450e9, rel=0.05)
    assert outside > 5 * inside
    assert exchange(1e9, 8, cluster) == pytest.approx(inside / 2, rel=0.05)


def test_tensor_parallelism_over_nodes_is_bound_by_the_network(planner: Any, profiles: Profiles) -> None:
    llama = profiles["llama-3.1-8b"]
    near = only_plan(planner(llama, "h100:8", "vllm", context=8192), tp=8).estimate
    far = only_plan(planner(llama, "h100:8x2", "vllm", context=8192), tp=16).estimate
    assert near and far and far.bound == "comm" and far.tpot_ms > near.tpot_ms


def test_stages_add_up_for_one_request(planner: Any, profiles: Profiles) -> None:
    llama = profiles["llama-3.1-8b"]
    whole = only_plan(planner(llama, "h100:1", "vllm", context=8192)).estimate
    piped = only_plan(planner(llama, "h100:4", "vllm", context=8192), tp=1, pp=4).estimate
    assert whole and piped and piped.tpot_ms == pytest.approx(whole.tpot_ms, rel=0.02)
    busy = only_plan(planner(llama, "h100:4", "vllm", context=8192, concurrency=4), tp=1, pp=4).estimate
    assert busy and busy.tokens_per_s == pytest.approx(4 * piped.tokens_per_s, rel=0.02)


def test_attention_grows_with_context_and_recurrence_does_not(kimi_k3: ArchitectureProfile) -> None:
    kda, mla = kimi_k3.layers[0].mixer, kimi_k3.layers[3].mixer
    assert mixer_flops(kda, 1000, 8) == mixer_flops(kda, 100_000, 8)
    assert mixer_flops(mla, 100_000, 8) == 100 * mixer_flops(mla, 1000, 8)


def test_packed_weights_count_as_the_values_they_hold(planner: Any) -> None:
    """The same arithmetic for a model in float8 blocks as for its plain self, at half the bytes."""
    plain = profile_of(SMALL_LLAMA | {"hidden_size": 128, "intermediate_size": 256})
    section = {"quant_method": "fp8", "weight_block_size": [64, 64], "activation_scheme": "dynamic"}
    packed = profile_of(SMALL_LLAMA | {"hidden_size": 128, "intermediate_size": 256, "quantization_config": section})
    one, other = (only_need(planner(each, "h100:1", "vllm", context=1024)).weights for each in (plain, packed))
    assert other.rest < one.rest and other.rest_values == one.rest_values
    stored = sum(spec.total_parameters for spec in expected_tensors(plain))
    assert one.rest_values == stored, "the tied table is read whole, as the head"
