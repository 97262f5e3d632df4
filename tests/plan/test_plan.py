"""Whole plans: lines that add up, verdicts, and what a reader is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from day0.errors import Finding
from day0.plan.accounting import ACCOUNTINGS, accounting_for
from day0.plan.cluster import parse_cluster
from day0.plan.layout import LayoutRequest
from day0.plan.plan import Plan, Planner
from day0.plan.workload import make_workload
from day0.profile.profile import ArchitectureProfile, NoFeedForward, NoMixer

from .conftest import profile_of

Profiles = dict[str, ArchitectureProfile]


def only_plan(planner: Planner, **sizes: int) -> Plan:
    return planner.plan(planner.accounting.complete(LayoutRequest(**sizes), planner.profile, planner.cluster.gpus))


@settings(max_examples=80, deadline=None)
@given(
    name=st.sampled_from(["llama-3.1-8b", "qwen3-0.6b", "qwen3-30b-a3b", "kimi-k3"]),
    spec=st.sampled_from(["h100:8", "h200:8x2", "b300:8", "l40s:4", "mi300x:8"]),
    engine=st.sampled_from(sorted(ACCOUNTINGS)),
    context=st.sampled_from([2048, 40960]),
    concurrency=st.sampled_from([1, 7, 200]),
    data=st.data(),
)
def test_lines_add_up_and_the_verdict_follows_from_them(
    profiles: Profiles, name: str, spec: str, engine: str, context: int, concurrency: int, data: st.DataObject
) -> None:
    cluster = parse_cluster(spec)
    workload = make_workload(profiles[name], context=context, concurrency=concurrency)
    made = Planner(profiles[name], cluster, accounting_for(engine), workload)
    layouts = [layout for layout in made.accounting.layouts(profiles[name], cluster) if not made.check(layout)]
    plan = made.plan(data.draw(st.sampled_from(layouts)))
    assert sum(rank.count for rank in plan.ranks) == cluster.gpus
    assert sum(rank.layers for rank in plan.ranks) == profiles[name].num_layers
    for rank in plan.ranks:
        lines = (
            rank.weights,
            rank.workspace,
            rank.activations,
            rank.state_pool,
            rank.kv_pool,
            rank.comm,
            rank.overhead,
        )
        assert all(isinstance(line, int) and line >= 0 for line in lines)
        assert sum(lines) + rank.free == rank.total == cluster.gpu.memory_bytes
    assert plan.fits is (not plan.violations)
    if plan.fits:
        assert min(rank.free for rank in plan.ranks) >= 0
        assert plan.max_concurrency is not None and plan.max_concurrency >= concurrency
        assert plan.max_context is not None and plan.max_context >= context
    else:
        assert all(each.message and each.fix for each in plan.violations)
        assert min(rank.free for rank in plan.ranks) < 0 or (plan.max_concurrency or 0) < concurrency


@pytest.mark.parametrize("engine", sorted(ACCOUNTINGS))
def test_kimi_k3_fits_eight_b300_and_not_eight_h100(planner: Any, kimi_k3: ArchitectureProfile, engine: str) -> None:
    assert only_plan(planner(kimi_k3, "b300:8", engine, context=131072), tp=8, ep=8).fits is True
    plan = only_plan(planner(kimi_k3, "h100:8", engine, context=131072), tp=8, ep=8)
    assert plan.fits is False and plan.shortfall > 100 * 2**30
    assert "GiB" in plan.violations[0].message


def test_figures_of_kimi_k3_on_one_stage(planner: Any, kimi_k3: ArchitectureProfile) -> None:
    plan = only_plan(planner(kimi_k3, "b300:8", "vllm", context=131072), tp=8, ep=8)
    assert plan.kv_bytes_per_token == 27_648
    assert plan.state_bytes_per_sequence == 449_372_160 // 8
    assert plan.ranks[0].count == 8 and plan.stage_layers == (93,)


def test_stages_are_balanced_and_residual_snapshots_cross_them(planner: Any, kimi_k3: ArchitectureProfile) -> None:
    plan = only_plan(planner(kimi_k3, "b200:8x4", "vllm", context=65536), tp=8, pp=4, ep=8)
    weights = [rank.weights for rank in plan.ranks]
    assert max(weights) / min(weights) < 1.1
    assert sum(plan.stage_layers) == 93
    (note,) = [note for note in plan.notes if "snapshots" in note]
    assert f"{7 * 7168 * 2} bytes" in note, "the third stage hands over six snapshots and the running sum"


def test_too_little_cache_says_what_would_fit(planner: Any, profiles: Profiles) -> None:
    llama = profiles["llama-3.1-8b"]
    plan = only_plan(planner(llama, "h100:1", "vllm", memory_gib=24, context=131072), tp=1)
    (violation,) = plan.violations
    assert violation.rule == "cache" and plan.fits is False
    assert plan.max_context and f"--context {plan.max_context}" in violation.fix
    again = only_plan(planner(llama, "h100:1", "vllm", memory_gib=24, context=plan.max_context), tp=1)
    assert again.fits is True


def test_fp8_halves_the_cache_of_a_token(planner: Any, profiles: Profiles) -> None:
    llama = profiles["llama-3.1-8b"]
    wide = only_plan(planner(llama, "h100:1", "vllm", context=8192), tp=1)
    narrow = only_plan(planner(llama, "h100:1", "vllm", context=8192, kv_dtype="fp8"), tp=1)
    assert narrow.kv_tokens and wide.kv_tokens and narrow.kv_tokens == pytest.approx(2 * wide.kv_tokens, rel=0.001)


def test_replicas_hold_more_requests_together(planner: Any, profiles: Profiles) -> None:
    llama = profiles["llama-3.1-8b"]
    one = only_plan(planner(llama, "h100:1", "vllm", context=8192), tp=1)
    four = only_plan(planner(llama, "h100:4", "vllm", context=8192), tp=1, dp=4)
    assert one.max_concurrency and four.max_concurrency
    assert four.max_concurrency == pytest.approx(4 * one.max_concurrency, rel=0.03)
    assert four.layout.ranks == 4 and four.ranks[0].count == 4


def test_an_unknown_model_cannot_be_said_to_fit() -> None:
    profile = profile_of({"model_type": "brand_new", "architectures": ["BrandNewForCausalLM"]})
    made = Planner(profile, parse_cluster("h200:8"), accounting_for("vllm"), make_workload(profile, context=4096))
    plan = only_plan(made)
    assert plan.fits is None and plan.ranks == () and "brand_new" in plan.unsized[0]


def test_stored_bytes_alone_can_refute_an_unknown_model() -> None:
    profile = profile_of({"model_type": "brand_new"})
    workload = make_workload(profile, context=4096)
    known = (profile, parse_cluster("h100:8"), accounting_for("vllm"), workload)
    assert only_plan(Planner(*known, stored_bytes=700 * 2**30)).fits is False
    bounded = only_plan(Planner(*known, stored_bytes=400 * 2**30))
    assert bounded.fits is None and "50.0 per GPU" in bounded.notes[0]


def test_weights_that_were_not_understood_are_neither_said_to_fit_nor_not_to(profiles: Profiles) -> None:
    finding = Finding("quantization-not-read", "error", "config.json: quantization_config", "int3 is not read yet")
    puzzling = replace(profiles["llama-3.1-8b"], findings=(finding,))
    workload = make_workload(puzzling, context=4096)
    for spec in ("h100:1", "l40s:1"):
        for gib in (80, 8):
            cluster = parse_cluster(spec)
            cluster = replace(cluster, gpu=replace(cluster.gpu, memory_bytes=gib * 2**30))
            plan = only_plan(Planner(puzzling, cluster, accounting_for("vllm"), workload))
            assert plan.fits is None and "int3" in plan.unsized[0]
    broken = only_plan(Planner(puzzling, parse_cluster("h100:3"), accounting_for("vllm"), workload), tp=3)
    assert broken.fits is False, "rules of divisibility need no sizes"


def test_a_pipeline_longer_than_the_model_is_refused_without_a_crash(planner: Any, profiles: Profiles) -> None:
    plan = only_plan(planner(profiles["llama-3.1-8b"], "h100:40", "vllm", context=4096), tp=1, pp=40)
    assert plan.fits is False and plan.ranks == () and plan.violations[0].rule == "pipeline"


class NewMixer:
    """A mixer that the profile room might learn tomorrow."""

    kind = "brand_new"

    def cache_planes(self) -> tuple[()]:
        return ()

    def state_shapes(self) -> tuple[()]:
        return ()


def test_a_part_without_a_formula_is_named_and_not_guessed(profiles: Profiles) -> None:
    llama = profiles["llama-3.1-8b"]
    layers = (replace(llama.layers[0], mixer=NewMixer()), *llama.layers[1:])  # type: ignore[arg-type]
    strange = replace(llama, layers=layers)
    workload = make_workload(strange, context=4096)
    plan = only_plan(Planner(strange, parse_cluster("h100:1"), accounting_for("vllm"), workload))
    assert plan.fits is None and plan.unsized == ("no formula for the memory of brand_new layers yet",)


def test_layers_that_are_half_a_layer_are_sized(profiles: Profiles) -> None:
    llama = profiles["llama-3.1-8b"]
    no_mixer = replace(llama, layers=(*llama.layers[:-1], replace(llama.layers[-1], mixer=NoMixer())))
    no_mlp = replace(llama, layers=(*llama.layers[:-1], replace(llama.layers[-1], feed_forward=NoFeedForward())))
    for engine in ACCOUNTINGS:
        sized = {}
        for name, profile in (("whole", llama), ("no mixer", no_mixer), ("no mlp", no_mlp)):
            workload = make_workload(profile, context=4096)
            made = Planner(profile, parse_cluster("h100:1"), accounting_for(engine), workload)
            sized[name] = only_plan(made)
        assert all(plan.fits for plan in sized.values())
        assert sized["no mixer"].kv_bytes_per_token == (sized["whole"].kv_bytes_per_token or 0) * 31 // 32
        assert sized["no mlp"].ranks[0].weights < sized["no mixer"].ranks[0].weights < sized["whole"].ranks[0].weights
