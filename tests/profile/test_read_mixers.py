from __future__ import annotations

import pytest

from day0.errors import InputError
from day0.profile.profile import KimiDeltaAttention, LatentAttention

KINDS = ["full_attention", "sliding_attention"]


def windows(profile) -> list[int | None]:
    return [layer.mixer.window for layer in profile.layers]


def test_llama(profile_of) -> None:
    mixer = profile_of("llama-3.1-8b").layers[5].mixer
    assert (mixer.num_heads, mixer.num_kv_heads, mixer.head_dim) == (32, 8, 128)
    assert mixer.scale == 128**-0.5
    assert (mixer.qk_norm, mixer.qkv_bias, mixer.o_bias, mixer.window) == (None, False, False, None)
    assert [plane.shape for plane in mixer.cache_planes()] == [(8, 128), (8, 128)]
    assert mixer.state_shapes() == ()


def test_qwen3_norms_queries_and_keys_per_head(profile_of) -> None:
    for recipe in ("qwen3-0.6b", "qwen3-30b-a3b"):
        assert all(layer.mixer.qk_norm == "head" for layer in profile_of(recipe).layers)


@pytest.mark.parametrize(
    ("recipe", "default"), [("llama-3.1-8b", 128), ("qwen3-0.6b", 128), ("mixtral-8x7b", 128), ("qwen3-30b-a3b", 64)]
)
def test_head_dim_where_none_is_said(profile_of, absent, recipe: str, default: int) -> None:
    profile = profile_of(recipe, head_dim=absent)
    assert profile.layers[0].mixer.head_dim == default
    assert "head_dim" in profile.defaulted_config_keys


@pytest.mark.parametrize(
    ("recipe", "heads", "default"),
    [("llama-3.1-8b", 32, 32), ("qwen3-0.6b", 64, 32), ("mixtral-8x7b", 32, 8), ("qwen3-30b-a3b", 32, 4)],
)
def test_key_value_heads_where_none_are_said(profile_of, absent, recipe: str, heads: int, default: int) -> None:
    silent = profile_of(recipe, num_attention_heads=heads, num_key_value_heads=absent, head_dim=128)
    assert silent.layers[0].mixer.num_kv_heads == default
    assert "num_key_value_heads" in silent.defaulted_config_keys
    null = profile_of(recipe, num_attention_heads=heads, num_key_value_heads=None, head_dim=128)
    assert null.layers[0].mixer.num_kv_heads == heads, "null means as many as heads"


def test_heads_must_share_out(profile_of) -> None:
    with pytest.raises(InputError, match="32 attention heads cannot share 5") as caught:
        profile_of("llama-3.1-8b", num_key_value_heads=5)
    assert caught.value.where == "config.json: num_key_value_heads"


@pytest.mark.parametrize("recipe", ["llama-3.1-8b", "qwen3-0.6b", "qwen3-30b-a3b"])
def test_attention_bias_is_on_all_four(profile_of, recipe: str) -> None:
    mixer = profile_of(recipe, attention_bias=True).layers[0].mixer
    assert (mixer.qkv_bias, mixer.o_bias) == (True, True)


def test_mixtral_has_no_bias_and_no_key_for_it(profile_of) -> None:
    profile = profile_of("mixtral-8x7b", attention_bias=True)
    assert not profile.layers[0].mixer.qkv_bias
    assert profile.unused_config_keys == ("attention_bias",)


# Windows.


def test_llama_has_no_window_and_reports_a_key_for_one(profile_of) -> None:
    profile = profile_of("llama-3.1-8b", sliding_window=64)
    assert set(windows(profile)) == {None}
    assert profile.unused_config_keys == ("sliding_window",)


def test_mixtral_slides_everywhere_or_nowhere(profile_of) -> None:
    assert set(windows(profile_of("mixtral-8x7b"))) == {None}
    assert set(windows(profile_of("mixtral-8x7b", sliding_window=4096))) == {4096}


def test_qwen3_window_declared_but_switched_off(profile_of) -> None:
    profile = profile_of("qwen3-0.6b", sliding_window=4096, use_sliding_window=False, max_window_layers=0)
    assert set(windows(profile)) == {None}
    assert profile.unused_config_keys == ()


def test_qwen3_slides_from_a_layer_on(profile_of) -> None:
    profile = profile_of("qwen3-0.6b", sliding_window=64, use_sliding_window=True, max_window_layers=26)
    assert windows(profile) == [None] * 26 + [64] * 2


def test_qwen3_slides_where_layer_types_say(profile_of) -> None:
    profile = profile_of("qwen3-0.6b", sliding_window=64, use_sliding_window=True, layer_types=KINDS * 14)
    assert windows(profile) == [None, 64] * 14


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ({"layer_types": KINDS}, "2 entries for 28 layers"),
        ({"layer_types": ["novel_attention"] * 28}, "'novel_attention' is not known"),
        ({"layer_types": KINDS * 14, "use_sliding_window": False}, "slide but use_sliding_window is off"),
    ],
)
def test_layer_types_that_contradict(profile_of, edits: dict, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        profile_of("qwen3-0.6b", **edits)
    assert caught.value.where == "config.json: layer_types"


def test_qwen3_moe_slides_everywhere_once_switched_on(profile_of) -> None:
    on = {"sliding_window": 64, "use_sliding_window": True}
    assert set(windows(profile_of("qwen3-30b-a3b", **on, max_window_layers=40))) == {64}
    assert set(windows(profile_of("qwen3-30b-a3b", sliding_window=64))) == {None}


def test_a_window_bounds_what_is_cached(profile_of) -> None:
    planes = profile_of("mixtral-8x7b", sliding_window=4096).layers[0].cache_planes()
    assert {plane.window for plane in planes} == {4096}


# Kimi.


def test_kimi_layers_are_shared_out_by_lists_that_count_from_one(profile_of) -> None:
    layers = profile_of("kimi-k3").layers
    full = [layer.index + 1 for layer in layers if isinstance(layer.mixer, LatentAttention)]
    assert full == [*range(4, 93, 4), 93], "every fourth, and the last"
    assert sum(isinstance(layer.mixer, KimiDeltaAttention) for layer in layers) == 69


def test_kimi_delta_attention(profile_of) -> None:
    mixer = profile_of("kimi-k3").layers[0].mixer
    assert (mixer.num_heads, mixer.head_dim, mixer.conv_kernel, mixer.width) == (96, 128, 4, 12288)
    assert (mixer.gate_lower_bound, mixer.full_rank_gate, mixer.norm_eps) == (-5.0, True, 1e-5)
    assert [(s.name, s.shape, s.dtype) for s in mixer.state_shapes()] == [
        ("recurrent", (96, 128, 128), "float32"),
        ("conv", (3, 12288, 3), "model"),
    ]
    assert mixer.cache_planes() == ()


def test_kimi_delta_heads_are_independent_of_the_attentions(profile_of) -> None:
    layers = profile_of(
        "kimi-k3", text_config__linear_attn_config__num_heads=40, text_config__linear_attn_config__head_dim=64
    ).layers
    assert (layers[0].mixer.num_heads, layers[0].mixer.head_dim) == (40, 64)
    assert layers[3].mixer.num_heads == 96


def test_a_missing_bound_selects_the_other_gate(profile_of, absent) -> None:
    profile = profile_of("kimi-k3", text_config__linear_attn_config__gate_lower_bound=absent)
    assert profile.layers[0].mixer.gate_lower_bound is None


def test_kimi_latent_attention(profile_of) -> None:
    mixer = profile_of("kimi-k3").layers[3].mixer
    assert (mixer.num_heads, mixer.q_lora_rank, mixer.kv_lora_rank) == (96, 1536, 512)
    assert (mixer.qk_nope_head_dim, mixer.qk_rope_head_dim, mixer.v_head_dim) == (128, 64, 128)
    assert (mixer.rope, mixer.scale) == (None, 192**-0.5)
    assert mixer.output_gate is not None
    assert mixer.latent_norm_eps == 1e-6, "not the config's 1e-5"
    assert [plane.shape for plane in mixer.cache_planes()] == [(576,)]


def test_latent_attention_without_a_low_rank_query(profile_of) -> None:
    assert profile_of("kimi-k3", text_config__q_lora_rank=None).layers[3].mixer.q_lora_rank is None


KDA = [layer for layer in range(1, 94) if layer % 4 and layer != 93]
FULL = [*range(4, 93, 4), 93]


@pytest.mark.parametrize(
    ("kda", "full", "words"),
    [
        ([layer - 1 for layer in KDA], [layer - 1 for layer in FULL], ["missing: [93]", "outside: [0]"]),
        (KDA, FULL[:-1], ["missing: [93]"]),
        ([*KDA, 4], FULL, ["in both: [4]"]),
        ([*KDA, 94], FULL, ["outside: [94]"]),
        ([*KDA, 1], FULL, ["once"]),
    ],
)
def test_layer_lists_must_be_a_partition(profile_of, kda: list[int], full: list[int], words: list[str]) -> None:
    edits = {
        "text_config__linear_attn_config__kda_layers": kda,
        "text_config__linear_attn_config__full_attn_layers": full,
    }
    with pytest.raises(InputError) as caught:
        profile_of("kimi-k3", **edits)
    assert all(word in caught.value.message for word in words)
    assert "linear_attn_config.kda_layers" in caught.value.where
    assert "count layers from 1" in caught.value.hint


def test_latent_attention_has_as_many_key_value_heads(profile_of) -> None:
    with pytest.raises(InputError, match="as many key/value heads as heads"):
        profile_of("kimi-k3", text_config__num_key_value_heads=8)
