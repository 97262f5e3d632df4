from __future__ import annotations

from typing import Any

import pytest

from day0.plan.activations import (
    SCORES_AT_ONCE,
    feed_forward_elements,
    forward_peak,
    logits_peak,
    snapshots,
    stored_attention_bytes,
)
from day0.plan.layout import Layout, LayoutRequest
from day0.plan.memory import RankNeed
from day0.plan.mixer_sizes import mixer_elements
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.source.resolve import resolve

Profiles = dict[str, ArchitectureProfile]


def needs(planner: Any, profile: ArchitectureProfile, spec: str, **sizes: int) -> tuple[RankNeed, ...]:
    made = planner(profile, spec, "vllm", context=4096)
    layout = made.accounting.complete(LayoutRequest(**sizes), profile, made.cluster.gpus)
    return made.needs(layout, made.table)


def test_a_dense_layer_is_its_gated_mlp(planner: Any, profiles: Profiles) -> None:
    """Llama 3.1 8B: gate, up and product of 14336, the output, residual and input of 4096, two bytes each."""
    (need,) = needs(planner, profiles["llama-3.1-8b"], "h100:1")
    assert forward_peak(need, 1000) == 1000 * 2 * (3 * 14336 + 4096 + 2 * 4096)


def test_tokens_scale_and_tensor_parallelism_cuts_the_inside_only(planner: Any, profiles: Profiles) -> None:
    (alone,) = needs(planner, profiles["llama-3.1-8b"], "h100:1")
    (eighth,) = needs(planner, profiles["llama-3.1-8b"], "h100:8", tp=8)
    assert forward_peak(alone, 2000) == 2 * forward_peak(alone, 1000)
    assert forward_peak(eighth, 1000) == 1000 * 2 * (3 * 14336 // 8 + 4096 + 2 * 4096)


def test_snapshots_of_attention_residuals_pile_up_over_stages(planner: Any, kimi_k3: ArchitectureProfile) -> None:
    assert [snapshots(need) for need in needs(planner, kimi_k3, "h200:8x2", tp=8, pp=2)] == [4, 8]
    (whole,) = needs(planner, kimi_k3, "h200:8", tp=8)
    assert snapshots(whole) == 8, "one every twelve of 93 layers"


def test_experts_see_the_tokens_of_all_replicas_that_share_them(profiles: Profiles) -> None:
    spec = profiles["qwen3-30b-a3b"].layers[0].feed_forward
    hidden = profiles["qwen3-30b-a3b"].hidden_size
    alone = feed_forward_elements(spec, hidden, Layout())
    sliced = feed_forward_elements(spec, hidden, Layout(tp=8, attention_tp=8, expert_tp=8))
    dealt = feed_forward_elements(spec, hidden, Layout(dp=8, ep=8))
    assert alone == 8 * (3 * 768 + 2 * 2048) + 2048
    assert sliced == 8 * (3 * 96 + 2 * 2048) + 2048
    assert dealt == alone, "eight times the tokens over an eighth of the experts"


def test_every_mixer_has_a_formula(profiles: Profiles) -> None:
    kinds = set()
    for profile in profiles.values():
        for layer in profile.layers:
            kinds.add(layer.mixer.kind)
            cut = mixer_elements(layer.mixer, profile.hidden_size, 4)
            assert 0 < cut < mixer_elements(layer.mixer, profile.hidden_size, 1)
    assert kinds == {"gqa", "mla", "kda"}


def test_only_the_last_stage_has_logits(planner: Any, profiles: Profiles) -> None:
    first, last = needs(planner, profiles["llama-3.1-8b"], "h100:2", tp=1, pp=2)
    assert logits_peak(first, 256, 38) == 0
    assert logits_peak(last, 256, 38) == 256 * 128256 * 38


@pytest.mark.parametrize("context", [1024, 131072])
def test_stored_scores_grow_with_the_context(planner: Any, profiles: Profiles, context: int) -> None:
    """Llama 3.1 8B on eight ranks: four heads' scores twice, and one head's keys and values of the context."""
    (need,) = needs(planner, profiles["llama-3.1-8b"], "h200:8", tp=8)
    assert stored_attention_bytes(need, 3, context) == 3 * 4 * context * 8 + context * 8 * 256 * 4


def test_scores_of_latents_are_taken_in_turn(planner: Any, kimi_k3: ArchitectureProfile) -> None:
    """Twelve heads: one turn keeps them three times, several four times, and never more rows than go at once."""
    (need,) = needs(planner, kimi_k3, "h200:8", tp=8)
    gathered = 1024 * 576 * 4
    assert stored_attention_bytes(need, 3, 1024) == 3 * 12 * 1024 * 12 + gathered
    assert stored_attention_bytes(need, 8192, 1024) == SCORES_AT_ONCE * 16 + gathered
    assert stored_attention_bytes(need, 9, 2 << 20) == 12 * (2 << 20) * 16 + (2 << 20) * 576 * 4, "a row at the least"


def test_turns_are_those_of_the_runtime() -> None:
    latent_attention = pytest.importorskip("day0.runtime.ops.latent_attention")
    assert latent_attention.BLOCK_ELEMENTS == SCORES_AT_ONCE


def test_a_sink_is_one_more_copy_of_the_scores(planner: Any) -> None:
    (need,) = needs(planner, read_profile(resolve("recipe:gpt-oss-120b")), "h200:1", tp=1)
    assert stored_attention_bytes(need, 5, 1000) == 5 * 64 * 1000 * 12 + 1000 * 8 * 128 * 4


def test_an_indexer_counts_where_it_is_dearer(planner: Any) -> None:
    """DeepSeek-V3.2: 64 heads of the indexer over all of the past, or 2,048 chosen latents of 576 and their scores."""
    (need,) = needs(planner, read_profile(resolve("recipe:deepseek-v3.2")), "h200:8", tp=8)
    assert stored_attention_bytes(need, 1, 100_000) == 4 * (66 * 100_000 + 100_000 * (576 + 128))
    assert stored_attention_bytes(need, 1, 10_000) == 4 * (3 * 2048 * (16 + 704) + 10_000 * 704)
