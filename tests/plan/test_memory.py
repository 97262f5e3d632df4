"""Cache bytes on a rank against the profile's own formula and against what the runtime allocates."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from day0.plan.layout import Layout
from day0.plan.memory import Capacity, LayerCache, PlaneCache, RankCache, conversion_workspace, rank_cache
from day0.profile.cache_sizes import cache_sizes
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.source.resolve import resolve

Profiles = dict[str, ArchitectureProfile]


def test_kimi_k3_keeps_27648_bytes_a_token_and_449372160_a_sequence(kimi_k3: ArchitectureProfile) -> None:
    whole = rank_cache(kimi_k3, kimi_k3.layers, Layout(), "auto")
    assert whole.token_bytes == 27_648
    assert whole.state_bytes == 449_372_160
    eighth = rank_cache(kimi_k3, kimi_k3.layers, Layout(tp=8, attention_tp=8), "bf16")
    assert eighth.token_bytes == 27_648, "a latent is not cut by heads"
    assert eighth.state_bytes == 449_372_160 // 8
    assert rank_cache(kimi_k3, kimi_k3.layers, Layout(), "fp8").token_bytes == 13_824
    assert rank_cache(kimi_k3, kimi_k3.layers, Layout(), "fp8").state_bytes == 449_372_160, "states are not quantised"


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "float32"])
def test_one_rank_keeps_what_the_profile_says(profiles: Profiles, dtype: str) -> None:
    for profile in profiles.values():
        sizes = cache_sizes(profile, dtype)
        cache = rank_cache(profile, profile.layers, Layout(), dtype)
        assert (cache.token_bytes, cache.state_bytes) == (sizes.kv_bytes_per_token, sizes.state_bytes_per_sequence)


def test_the_runtime_allocates_what_the_plan_says(profiles: Profiles) -> None:
    torch = pytest.importorskip("torch")
    from day0.runtime.cache.storage import page_bytes, slot_bytes

    for profile in profiles.values():
        cache = rank_cache(profile, profile.layers, Layout(), "bf16")
        assert page_bytes(profile.layers, 16, torch.bfloat16) == 16 * cache.token_bytes
        assert slot_bytes(profile.layers, torch.bfloat16) == cache.state_bytes


def test_key_value_heads_are_cut_and_then_copied(profiles: Profiles) -> None:
    llama = profiles["llama-3.1-8b"]  # 32 layers, 8 heads of 128, keys and values in two bytes
    for tp, heads in ((1, 8), (2, 4), (8, 1), (16, 1)):
        cache = rank_cache(llama, llama.layers, Layout(tp=tp, attention_tp=tp), "bf16")
        assert cache.token_bytes == 32 * 2 * heads * 128 * 2


def test_context_parallel_ranks_keep_every_other_token(kimi_k3: ArchitectureProfile) -> None:
    alone = rank_cache(kimi_k3, kimi_k3.layers, Layout(tp=8, attention_tp=8), "bf16")
    spread = rank_cache(kimi_k3, kimi_k3.layers, Layout(tp=8, cp=8, attention_tp=8), "bf16")
    grown = alone.sequence_bytes(8000) - alone.state_bytes
    assert spread.sequence_bytes(8000) - spread.state_bytes == grown // 8
    assert spread.state_bytes == alone.state_bytes


def test_a_window_stops_growing() -> None:
    cache = RankCache((LayerCache((PlaneCache(10, window=100),)), LayerCache((PlaneCache(10),), 7)))
    assert cache.sequence_bytes(50) == 50 * 10 + 50 * 10 + 7
    assert cache.sequence_bytes(5000) == 100 * 10 + 5000 * 10 + 7
    assert (cache.token_bytes, cache.state_bytes) == (10, 7)


def test_planes_of_one_layer_keep_their_own_windows_and_strides() -> None:
    """A window, every fourth token as one entry, and its index: 100 tokens are 40 + 25 + 25 entries."""
    layer = LayerCache((PlaneCache(8, window=40), PlaneCache(8, stride=4), PlaneCache(2, stride=4, index=True)))
    assert layer.token_bytes == Fraction(10, 4)
    assert layer.bytes_at(100) == 40 * 8 + 25 * 8 + 25 * 2
    assert layer.bytes_at(101) == 40 * 8 + 26 * 8 + 26 * 2, "an unfinished entry takes its whole room"
    assert RankCache((layer,) * 3).token_bytes == 8, "7.5, rounded up once"


def test_the_workspace_holds_whole_experts_unpacked(kimi_k3: ArchitectureProfile, profiles: Profiles) -> None:
    assert conversion_workspace(kimi_k3, kimi_k3.layers, 16, Layout()) == 16 * 3 * 3072 * 3584 * 2
    assert conversion_workspace(kimi_k3, kimi_k3.layers, 16, Layout(expert_tp=8)) == 16 * 3 * 384 * 3584 * 2
    assert conversion_workspace(kimi_k3, kimi_k3.layers[:1], 16, Layout()) == 0, "the first layer is dense"
    assert conversion_workspace(kimi_k3, kimi_k3.layers, 1000, Layout()) == 896 * 3 * 3072 * 3584 * 2, (
        "no more than there are"
    )
    assert conversion_workspace(profiles["mixtral-8x7b"], profiles["mixtral-8x7b"].layers, 16, Layout()) == 0


def test_the_workspace_holds_the_largest_matrix_of_packed_linear_layers() -> None:
    """FP8 throughout: an up-projection of the dense layers is larger than two experts, and not than sixteen."""
    deepseek = read_profile(resolve("recipe:deepseek-r1"))
    assert conversion_workspace(deepseek, deepseek.layers, 16, Layout()) == 16 * 3 * 2048 * 7168 * 2
    assert (
        conversion_workspace(deepseek, deepseek.layers, 2, Layout()) == max(2 * 3 * 2048, 128 * 128, 18432) * 7168 * 2
    )
    assert conversion_workspace(deepseek, deepseek.layers, 1, Layout(expert_tp=8)) == 18432 * 7168 * 2
    assert (
        conversion_workspace(deepseek, deepseek.layers, 1, Layout(8, attention_tp=8, expert_tp=8))
        == 18432 * 7168 * 2 // 8
    )


capacities = st.builds(
    Capacity,
    blocks=st.integers(0, 10_000) | st.none(),
    block_tokens=st.integers(1, 512),
    fixed_blocks=st.integers(0, 8),
    slots=st.integers(0, 300) | st.none(),
    groups=st.integers(0, 4),
)


@given(capacities, st.integers(1, 100_000), st.integers(1, 64))
def test_what_is_offered_is_held(capacity: Capacity, context: int, sequences: int) -> None:
    """The longest context for n sequences is one of which n are really held, and a longer one is not."""
    if capacity.blocks is not None and capacity.groups == 0 and capacity.fixed_blocks == 0:
        return  # nothing costs anything: not a division an engine makes
    longest = capacity.context(sequences)
    if longest is None:
        assert capacity.sequences(context) >= sequences
    elif longest > 0:
        assert capacity.sequences(longest) >= sequences
        assert capacity.sequences(longest + 1) < sequences
    else:
        assert capacity.sequences(1) < sequences or (capacity.blocks or 0) // sequences == capacity.fixed_blocks


@given(capacities, st.integers(1, 100_000))
def test_longer_sequences_are_never_more(capacity: Capacity, context: int) -> None:
    if capacity.blocks is not None and capacity.groups == 0 and capacity.fixed_blocks == 0:
        return
    assert capacity.sequences(context + 1) <= capacity.sequences(context)
