"""What sets the attention and norms of each line of grouped-query decoders apart, in small configs of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from grouped_query_models import MOE, SMALL, Read, experts, mixers, small_reader, tensor

from day0.errors import InputError
from day0.profile.profile import CrossAttention
from day0.profile.read import read_profile
from day0.profile.tensors import expected_tensors


@pytest.fixture
def read(files_of: Callable[[dict[str, Any]], Any]) -> Read:
    return small_reader(files_of)


class TestWindows:
    def test_qwen2_slides_from_a_layer_on_behind_its_switch(self, read: Read) -> None:
        keys = {"sliding_window": 16, "max_window_layers": 3}
        assert [m.window for m in mixers(read("qwen2", use_sliding_window=True, **keys))] == [None, None, None, 16]
        still = read("qwen2", use_sliding_window=False, **keys)
        assert [m.window for m in mixers(still)] == [None] * 4
        assert still.unused_config_keys == ()

    def test_mistral_slides_everywhere_unless_told_not_to(self, read: Read) -> None:
        assert {m.window for m in mixers(read("mistral", sliding_window=20))} == {20}
        assert {m.window for m in mixers(read("mistral"))} == {4096}

    def test_null_is_no_window_for_mistral(self, files_of: Callable[[dict[str, Any]], Any]) -> None:
        profile = read_profile(files_of(SMALL | {"model_type": "mistral", "sliding_window": None}))
        assert {m.window for m in mixers(profile)} == {None}

    def test_layer_types_come_before_any_default(self, read: Read) -> None:
        kinds = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
        for model_type in ("olmo3", "gemma3_text", "kolibri1", "flint"):
            profile = read(model_type, layer_types=kinds, sliding_window=16, **MOE)
            assert [m.window for m in mixers(profile)] == [None, 16, 16, None], model_type

    def test_a_list_of_another_length_is_refused(self, read: Read) -> None:
        with pytest.raises(InputError, match="2 entries for 4 layers"):
            read("olmo3", layer_types=["full_attention"] * 2)

    @pytest.mark.parametrize(
        ("model_type", "wanted"),
        (
            ("olmo3", [16, 16, 16, None]),
            ("gemma2", [16, None, 16, None]),
            ("gpt_oss", [16, None, 16, None]),
            ("gemma3_text", [16, 16, 16, 16]),
            ("flint", [None, None, 16, None]),
        ),
    )
    def test_the_default_pattern(self, read: Read, model_type: str, wanted: list[int | None]) -> None:
        profile = read(model_type, sliding_window=16, num_local_experts=4, **MOE)
        assert [m.window for m in mixers(profile)] == wanted

    def test_exaone_patterns_are_words_or_numbers(self, read: Read) -> None:
        letters = read("exaone4", sliding_window=16, sliding_window_pattern="LG")
        assert [m.window for m in mixers(letters)] == [16, None, 16, None]
        assert [m.rope is not None for m in mixers(letters)] == [True, False, True, False]
        with pytest.raises(InputError, match="'LXG' is not known"):
            read("exaone4", sliding_window=16, sliding_window_pattern="LXG")

    def test_llama4_chunks_where_positions_are(self, read: Read) -> None:
        profile = read("llama4_text", num_local_experts=4, attention_chunk_size=32, no_rope_layers=[1, 0, 1, 1])
        assert [(m.window, m.chunked, m.rope is not None) for m in mixers(profile)] == [
            (32, True, True),
            (None, False, False),
            (32, True, True),
            (32, True, True),
        ]
        tuned = [m.temperature is not None for m in mixers(profile)]
        normed = [(m.qk_norm, m.norm_after_rope) for m in mixers(profile)]
        assert tuned == [False, True, False, False]
        assert normed == [("unit", True), (None, False), ("unit", True), ("unit", True)]


class TestHeads:
    def test_mimo_v2_has_other_heads_in_windows(self, read: Read) -> None:
        profile = read(
            "mimo_v2_flash",
            hybrid_layer_pattern=[0, 1, 1, 0],
            moe_layer_freq=[0, 1, 1, 1],
            v_head_dim=6,
            swa_num_key_value_heads=3,
            swa_head_dim=10,
            swa_v_head_dim=4,
            sliding_window=8,
            attention_value_scale=0.5,
            partial_rotary_factor=0.4,
            n_routed_experts=8,
            num_experts_per_tok=2,
            moe_intermediate_size=24,
            layernorm_epsilon=1e-5,
        )
        full, sliding = mixers(profile)[0], mixers(profile)[1]
        assert (full.num_kv_heads, full.value_dim, full.window, full.sinks) == (2, 6, None, False)
        assert (sliding.num_kv_heads, sliding.value_dim, sliding.window, sliding.sinks) == (3, 4, 8, True)
        assert [plane.shape for plane in sliding.cache_planes()] == [(3, 10), (3, 4)]
        assert full.value_scale == 0.5 and full.rope is not None and full.rope.dim == 4
        assert (full.rope.theta, sliding.rope and sliding.rope.theta) == (5e6, 1e4)
        assert tensor(profile, "layers.1.mixer.o_proj.weight").shape == (48, 6 * 4)
        assert tensor(profile, "layers.1.mixer.sinks").name == "model.layers.1.self_attn.attention_sink_bias"
        assert profile.layers[0].feed_forward.kind == "dense" and profile.unused_config_keys == ()

    def test_laguna_counts_heads_by_layer_and_gates_them(self, read: Read) -> None:
        profile = read("laguna", num_attention_heads_per_layer=[6, 4, 6, 2], shared_expert_intermediate_size=12, **MOE)
        assert [m.num_heads for m in mixers(profile)] == [6, 4, 6, 2]
        assert tensor(profile, "layers.1.mixer.g_proj.weight").shape == (4, 48)
        channels = read("laguna", gating="per-element", shared_expert_intermediate_size=12, **MOE)
        assert tensor(channels, "layers.0.mixer.g_proj.weight").shape == (60, 48)
        with pytest.raises(InputError, match="5 attention heads cannot share 2"):
            read("laguna", num_attention_heads_per_layer=[6, 5, 6, 2], **MOE)

    def test_gemma4_widens_global_heads_and_takes_values_from_keys(self, read: Read) -> None:
        profile = read(
            "gemma4_text",
            num_hidden_layers=6,
            global_head_dim=20,
            num_global_key_value_heads=1,
            attention_k_eq_v=True,
            hidden_size_per_layer_input=0,
            sliding_window=16,
        )
        local, wide = mixers(profile)[0], mixers(profile)[5]
        assert (local.head_dim, local.num_kv_heads, local.window, local.values_are_keys) == (10, 2, 16, False)
        assert (wide.head_dim, wide.num_kv_heads, wide.window, wide.values_are_keys) == (20, 1, None, True)
        assert [plane.elements for plane in wide.cache_planes()] == [20, 20]
        assert wide.rope is not None and (wide.rope.scaling, wide.rope.dim) == ("none", 6)
        paths = {spec.path for spec in expected_tensors(profile)}
        assert "layers.0.mixer.v_proj.weight" in paths and "layers.5.mixer.v_proj.weight" not in paths

    def test_gemma4_layers_that_share_a_cache(self, read: Read) -> None:
        kinds = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
        profile = read("gemma4_text", layer_types=kinds, num_kv_shared_layers=2, use_double_wide_mlp=True)
        assert [m.cache_of for m in mixers(profile)] == [None, None, 0, 1]
        assert mixers(profile)[2].cache_planes() == ()
        assert tensor(profile, "layers.2.ffn.gate_proj.weight").shape == (200, 48)
        paths = {spec.path for spec in expected_tensors(profile)}
        assert not any(path.startswith("layers.2.mixer.k_") for path in paths)
        assert tensor(profile, "per_layer.embed.weight").shape == (262144, 4 * 256)

    def test_mllama_reads_images_in_some_layers(self, files_of: Callable[[dict[str, Any]], Any]) -> None:
        text = SMALL | {"cross_attention_layers": [1], "head_dim": 8}
        profile = read_profile(files_of({"model_type": "mllama", "text_config": text}))
        assert [type(layer.mixer) for layer in profile.layers].count(CrossAttention) == 1
        cross = profile.layers[1].mixer
        assert isinstance(cross, CrossAttention) and cross.cache_planes() == () and cross.encoder_elements == 32
        assert tensor(profile, "embed.weight").shape == (109, 48)
        assert (
            tensor(profile, "layers.1.mixer.cross.ffn_gate").name == "language_model.model.layers.1.cross_attn_mlp_gate"
        )


class TestPositions:
    def test_smollm3_skips_every_fourth_layer(self, read: Read) -> None:
        assert [m.rope is not None for m in mixers(read("smollm3"))] == [True, True, True, False]
        listed = read("smollm3", no_rope_layers=[0, 1, 1, 1], no_rope_layer_interval=4)
        assert [m.rope is not None for m in mixers(listed)] == [False, True, True, True]
        with pytest.raises(InputError, match="3 entries for 4 layers"):
            read("smollm3", no_rope_layers=[1, 1, 1])

    def test_kinds_of_layers_with_frequencies_of_their_own(self, read: Read) -> None:
        yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
        olmo = mixers(read("olmo3", rope_scaling=yarn, rope_theta=1000.0))
        assert [m.rope.scaling for m in olmo if m.rope] == ["none", "none", "none", "yarn"]
        parameters = {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        }
        for keys in (
            {"rope_parameters": parameters},
            {"rope_theta": 1e6, "rope_scaling": parameters["full_attention"]},
        ):
            profile = read("gemma3_text", sliding_window_pattern=2, **keys)
            ropes = [(m.rope.theta, m.rope.scaling) for m in mixers(profile) if m.rope]
            assert ropes == [(1e4, "none"), (1e6, "linear")] * 2
            assert profile.unused_config_keys == ()

    def test_axes_of_images(self, read: Read) -> None:
        keys = {"rope_scaling": {"type": "mrope", "mrope_section": [1, 2, 2]}, "rope_theta": 1e6}
        rope = mixers(read("qwen2_5_vl", **keys))[0].rope
        assert rope is not None and (rope.sections, rope.interleaved_sections, rope.scaling) == (
            (1, 2, 2),
            False,
            "none",
        )

    def test_minimax_rotates_some_channels(self, read: Read) -> None:
        keys = {"num_local_experts": 8, "num_experts_per_tok": 2}
        rope = mixers(read("minimax_m2", rotary_dim=4, **keys))[0].rope
        assert rope is not None and rope.dim == 4
        with pytest.raises(InputError, match="cannot rotate 12 of 10"):
            read("minimax_m2", rotary_dim=12, **keys)
        assert read("minimax_m2", shared_intermediate_size=0, **keys).unused_config_keys == ()
        with pytest.raises(InputError, match="shared experts of 64 channels"):
            read("minimax_m2", shared_intermediate_size=64, **keys)

    def test_longrope_has_divisors_for_each_frequency(self, read: Read) -> None:
        section = {"type": "longrope", "short_factor": [1, 1.5, 2, 2, 3], "long_factor": [1, 2, 4, 8, 16]}
        profile = read("phi3", rope_scaling=section, original_max_position_embeddings=32)
        rope = mixers(profile)[0].rope
        assert rope is not None and rope.short_factors == (1, 1.5, 2, 2, 3) and rope.long_factors[-1] == 16
        assert dict(rope.parameters) == {"original_max_position_embeddings": 32, "factor": 2.0}  # 64 over 32


class TestNorms:
    def test_where_they_stand(self, read: Read) -> None:
        assert read("olmo2").layers[0].norms == ("mixer_post_norm", "ffn_post_norm")
        assert len(read("gemma2").layers[0].norms) == 4 and read("gemma2").norm_kind == "rms_plus_one"
        assert read("cohere").layers[0].norms == ("mixer_norm",)

    def test_of_queries_and_keys(self, read: Read) -> None:
        all_heads = read("olmo2")
        assert tensor(all_heads, "layers.0.mixer.q_norm.weight").shape == (60,)
        assert tensor(all_heads, "layers.0.mixer.k_norm.weight").shape == (20,)
        assert tensor(read("dots1", n_routed_experts=8, **MOE), "layers.0.mixer.q_norm.weight").shape == (10,)
        hunyuan = read("hunyuan_v1_dense")
        assert mixers(hunyuan)[0].norm_after_rope
        assert tensor(hunyuan, "layers.0.mixer.q_norm.weight").name.endswith("query_layernorm.weight")

    def test_phimoe_has_biases_in_its_norms_and_its_head(self, read: Read) -> None:
        profile = read("phimoe", lm_head_bias=True, attention_bias=True, num_local_experts=4, num_experts_per_tok=2)
        for path in ("norm.bias", "layers.3.ffn_norm.bias", "layers.0.mixer.o_proj.bias", "lm_head.bias"):
            assert tensor(profile, path).parameters in (48, 101)
        assert experts(profile, 0).router.scoring == "sparsemixer"
