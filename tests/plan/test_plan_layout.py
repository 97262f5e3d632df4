"""Every rule of plan/layout.py, with the layout that breaks it and the fix that mends it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from day0.plan.cluster import parse_cluster
from day0.plan.layout import RULES, Layout, LayoutRequest, cache_copies, check_layout, layout_notes, model_parts
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.source.resolve import resolve

Profiles = dict[str, ArchitectureProfile]


def broken(profile: ArchitectureProfile, spec: str, **sizes: int) -> dict[str, tuple[str, str]]:
    layout = Layout(**sizes)
    return {
        each.rule: (each.message, each.fix) for each in check_layout(model_parts(profile), layout, parse_cluster(spec))
    }


def test_a_layout_that_obeys_breaks_nothing(profiles: Profiles) -> None:
    assert broken(profiles["kimi-k3"], "h200:8x2", tp=8, pp=2, attention_tp=8, expert_tp=8) == {}
    assert broken(profiles["kimi-k3"], "h200:8", tp=8, ep=8, dp=8) == {}
    assert broken(profiles["llama-3.1-8b"], "h100:8", tp=8, attention_tp=8) == {}


@pytest.mark.parametrize(
    ("recipe", "spec", "sizes", "rule", "numbers"),
    [
        ("llama-3.1-8b", "h100:8", {"tp": 4, "attention_tp": 4}, "ranks", ["4", "8"]),
        ("llama-3.1-8b", "h100:8", {"tp": 3, "dp": 2, "attention_tp": 4}, "dense-width", ["3", "4", "8"]),
        ("llama-3.1-8b", "h100:6", {"tp": 6, "attention_tp": 6}, "gqa-heads", ["32", "6"]),
        ("llama-3.1-8b", "h100:6", {"tp": 6, "attention_tp": 6}, "kv-heads", ["8", "6"]),
        ("llama-3.1-8b", "h100:7", {"tp": 7, "attention_tp": 7}, "vocabulary", ["128256", "7"]),
        ("kimi-k3", "h200:5", {"tp": 5, "attention_tp": 5, "expert_tp": 1}, "kda-heads", ["96", "5"]),
        ("kimi-k3", "h200:5", {"tp": 5, "attention_tp": 5, "expert_tp": 1}, "mla-heads", ["96", "5"]),
        ("kimi-k3", "h200:5", {"tp": 5, "attention_tp": 5, "expert_tp": 1}, "mlp-width", ["6144", "5"]),
        ("kimi-k3", "h200:8", {"tp": 8, "ep": 3, "attention_tp": 8, "expert_tp": 2}, "expert-ranks", ["8", "3"]),
        ("kimi-k3", "h200:8x3", {"tp": 24, "ep": 24, "attention_tp": 24}, "experts", ["896", "24"]),
        ("llama-3.1-8b", "h100:2", {"tp": 2, "ep": 2, "attention_tp": 2}, "experts", ["2"]),
        ("llama-3.1-8b", "h100:33", {"pp": 33}, "pipeline", ["33", "32"]),
        ("llama-3.1-8b", "h100:8", {"tp": 8, "cp": 2, "attention_tp": 8}, "context", ["2", "1"]),
        ("kimi-k3", "h200:8", {"tp": 8, "cp": 3, "attention_tp": 8, "expert_tp": 8}, "context", ["3", "8"]),
    ],
)
def test_a_broken_rule_says_its_numbers_and_a_way_out(
    profiles: Profiles, recipe: str, spec: str, sizes: dict[str, int], rule: str, numbers: list[str]
) -> None:
    found = broken(profiles[recipe], spec, **sizes)
    assert rule in found
    message, fix = found[rule]
    assert all(re.search(rf"\b{number}\b", message) for number in numbers), message
    assert fix


def test_mxfp4_experts_are_cut_between_groups_of_32(profiles: Profiles) -> None:
    kimi = profiles["kimi-k3"]  # width 3072: 96 groups
    assert "expert-slices" not in broken(kimi, "h200:8x4", tp=32, attention_tp=32, expert_tp=32)
    message, fix = broken(kimi, "h200:8x8", tp=64, attention_tp=64, expert_tp=64)["expert-slices"]
    assert "3072" in message and "96 mxfp4 groups of 32" in message and "64 slices" in message
    assert "32" in fix and "--ep 64" in fix


def test_whole_experts_are_offered_only_where_they_can_be_dealt(profiles: Profiles) -> None:
    _, fix = broken(profiles["mixtral-8x7b"], "h100:3", tp=3, attention_tp=3, expert_tp=3)["expert-slices"]
    assert "--ep" not in fix


def test_a_degree_that_a_fix_offers_breaks_the_rule_no_more(profiles: Profiles) -> None:
    _, fix = broken(profiles["kimi-k3"], "h200:7", tp=7, attention_tp=7)["kda-heads"]
    offered = [int(number) for number in re.findall(r"\d+", fix.split(";")[0])]
    assert offered and all(96 % degree == 0 for degree in offered)


def test_key_value_heads_are_copied_where_ranks_outnumber_them(profiles: Profiles) -> None:
    llama = profiles["llama-3.1-8b"]
    layout = Layout(tp=16, attention_tp=16)
    assert check_layout(model_parts(llama), layout, parse_cluster("h100:8x2")) == ()
    notes = layout_notes(model_parts(llama), layout, parse_cluster("h100:8x2"))
    assert any("kept by 2 ranks" in note for note in notes)
    assert any("across nodes" in note for note in notes)
    assert cache_copies(llama.layers[0].mixer, 8) == 1


def test_a_latent_is_whole_on_every_rank_and_can_be_spread_by_cp(profiles: Profiles) -> None:
    kimi, cluster = profiles["kimi-k3"], parse_cluster("h200:8")
    layout = Layout(tp=8, attention_tp=8, expert_tp=8)
    assert any("whole latent" in note for note in layout_notes(model_parts(kimi), layout, cluster))
    spread = Layout(tp=8, cp=8, attention_tp=8, expert_tp=8)
    assert check_layout(model_parts(kimi), spread, cluster) == ()
    notes = layout_notes(model_parts(kimi), spread, cluster)
    assert not any("whole latent" in note for note in notes)
    assert any("state of kda layers" in note for note in notes)


def test_dp_attention_shares_experts_over_nodes_with_a_note(profiles: Profiles) -> None:
    layout = Layout(tp=8, ep=16, dp=2, attention_tp=8)
    notes = layout_notes(model_parts(profiles["kimi-k3"]), layout, parse_cluster("h200:8x2"))
    assert any("experts are spread over 16 ranks" in note for note in notes)


def test_rules_are_a_table_without_doubles() -> None:
    assert len(set(RULES)) == len(RULES)


def test_a_label_names_what_differs_from_one() -> None:
    assert Layout().label == "one rank"
    assert Layout(tp=8, pp=2, attention_tp=8).label == "tp 8 pp 2"
    assert Layout(tp=16, ep=16, dp=2, attention_tp=8).label == "tp 16 ep 16 dp 2 attention tp 8"


def test_a_degree_out_of_reach_is_answered_at_once(profiles: Profiles) -> None:
    rules = broken(profiles["llama-3.1-8b"], "h200:8", tp=10**30, attention_tp=10**30)
    assert {"ranks", "mlp-width"} <= rules.keys()


def test_second_copies_of_experts_are_dealt_with_the_rest(planner: Any, profiles: Profiles) -> None:
    """DeepSeek's own figures: 256 experts and 32 second copies over 8 lots are 36 each; here 128 and 16, 18 each."""
    moe = profiles["qwen3-30b-a3b"]
    plain = planner(moe, "h200:8", "vllm", context=8192)
    more = planner(moe, "h200:8", "vllm", context=8192, redundant_experts=16)
    layout = plain.accounting.complete(LayoutRequest(tp=1, dp=8, ep=8), moe, 8)
    assert not more.check(layout)
    held, grown = (each.needs(layout, each.table)[0].weights for each in (plain, more))
    assert (grown.experts, grown.rest) == (held.experts * 18 // 16, held.rest)


@pytest.mark.parametrize(
    ("redundant", "sizes", "rule", "said"),
    [
        (3, {"tp": 8, "ep": 8}, "experts", "128 experts and 3 second copies do not divide by ep 8"),
        (8, {"tp": 8}, "redundancy", "ep 1 is a single lot"),
        (128 * 8, {"tp": 8, "ep": 8}, "redundancy", "more than one copy"),
    ],
)
def test_second_copies_have_their_rules(
    planner: Any, profiles: Profiles, redundant: int, sizes: dict[str, int], rule: str, said: str
) -> None:
    made = planner(profiles["qwen3-30b-a3b"], "h200:8", "vllm", context=8192, redundant_experts=redundant)
    found = made.check(made.accounting.complete(LayoutRequest(**sizes), made.profile, 8))
    assert any(each.rule == rule and said in each.message and each.fix for each in found), found


def test_a_dense_model_and_our_runtime_have_no_second_copies(planner: Any, profiles: Profiles) -> None:
    dense = planner(profiles["llama-3.1-8b"], "h200:1", "vllm", context=8192, redundant_experts=8)
    assert [each.rule for each in dense.check(Layout())] == ["redundancy"]
    ours = planner(profiles["qwen3-30b-a3b"], "h200:8", "day0", context=8192, redundant_experts=8)
    layout = ours.accounting.complete(LayoutRequest(tp=8, ep=8), ours.profile, 8)
    assert "engine" in [each.rule for each in ours.check(layout)]


def test_what_slices_and_towers_cost_is_told(planner: Any, profiles: Profiles) -> None:
    """Kimi K3's experts are 3,072 wide: 384 columns on each of eight ranks, which older kernels store as 512."""
    made = planner(profiles["kimi-k3"], "b300:8", "vllm", "0.30.0", context=8192)
    sliced = made.plan(made.accounting.complete(LayoutRequest(tp=8), made.profile, 8)).notes
    whole = made.plan(made.accounting.complete(LayoutRequest(tp=8, ep=8), made.profile, 8)).notes
    (note,) = [each for each in sliced if "columns" in each]
    assert "slices of 384 columns is stored as 512, 33% more" in note and "--ep 8" in note
    assert not any("columns" in each for each in whole)
    tower = made.profile.vision
    assert tower is not None
    placed = [each for each in sliced if "vision tower" in each]
    assert placed and ("data" in placed[0]) is bool(tower.num_heads % 8)


def test_engines_that_round_groups_up_leave_the_last_slice_shorter() -> None:
    """gpt-oss: 90 groups of 32 columns over eight ranks are seven times twelve and six; over 32 the last has none."""
    profile = read_profile(resolve("recipe:gpt-oss-120b"))
    for engine, slices, broken_rules in (("vllm", 8, 0), ("sglang", 8, 0), ("day0", 8, 1), ("vllm", 32, 1)):
        layout = Layout(tp=slices, attention_tp=slices, expert_tp=slices)
        parts = model_parts(profile, engine=engine)
        found = [each for each in check_layout(parts, layout, parse_cluster(f"h200:{slices}")) if "slices" in each.rule]
        assert len(found) == broken_rules, (engine, slices)
