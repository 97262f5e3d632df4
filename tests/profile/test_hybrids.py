"""Hybrids from their configs: kinds of layer, what each keeps, and what contradictions are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest

from day0.errors import InputError
from day0.inventory import layer_operators, operators_needed
from day0.profile.cache_sizes import cache_sizes
from day0.profile.feed_forward import DenseFeedForward, RoutedExperts
from day0.profile.mixers_linear import GatedDeltaNet, LightningAttention, Mamba2
from day0.profile.parameters import count_parameters
from day0.profile.profile import ArchitectureProfile, GroupedQueryAttention, KimiDeltaAttention
from day0.profile.read import read_profile
from day0.profile.tensors import expected_tensors
from day0.source.model_files import ModelFiles
from day0.source.resolve import resolve

Files = Callable[..., ModelFiles]
CORPUS = Path(__file__).resolve().parents[3] / "shared" / "model_configs"

QWEN: dict[str, Any] = {
    "model_type": "qwen3_5_moe_text",
    "hidden_size": 64,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 100,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
    "mtp_num_hidden_layers": 1,
    "dtype": "bfloat16",
}
NEMOTRON: dict[str, Any] = {
    "model_type": "nemotron_h",
    "hidden_size": 64,
    "hybrid_override_pattern": "ME*-",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "vocab_size": 100,
    "mamba_num_heads": 8,
    "mamba_head_dim": 12,
    "n_groups": 2,
    "ssm_state_size": 16,
    "conv_kernel": 4,
    "intermediate_size": 96,
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 40,
    "moe_shared_expert_intermediate_size": 56,
    "moe_latent_size": 32,
    "num_nextn_predict_layers": 2,
    "mtp_hybrid_override_pattern": "*E",
    "time_step_limit": [0.0, float("inf")],
    "dtype": "bfloat16",
}
LING: dict[str, Any] = {
    "model_type": "bailing_hybrid",
    "architectures": ["BailingMoeV2_5ForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 10,
    "layer_group_size": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "vocab_size": 100,
    "intermediate_size": 96,
    "group_norm_size": 2,
    "use_qk_norm": True,
    "partial_rotary_factor": 0.5,
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "first_k_dense_replace": 1,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_shared_experts": 1,
    "moe_intermediate_size": 24,
    "n_group": 2,
    "topk_group": 1,
    "norm_topk_prob": True,
}
LING_3 = {key: value for key, value in LING.items() if key not in ("group_norm_size", "use_qk_norm")} | {
    "architectures": ["BailingMoeV3ForCausalLM"],
    "short_conv_kernel_size": 4,
    "no_kda_lora": True,
    "kda_safe_gate": True,
    "kda_lower_bound": -5,
    "gated_attention_proj_granularity_type": "head_wise",
    "expert_swiglu_limit_list": [0] * 9 + [4],
    "share_expert_swiglu_limit_list": [0] * 8 + [5, 7],
}
NAS_ATTENTION = {"n_heads_in_group": 2, "no_op": False, "replace_with_linear": False, "window_length": None}
NAS_FFN = {"ffn_mult": 2.625, "no_op": False, "replace_with_linear": False, "sparsify": None}
NAS: dict[str, Any] = {
    "model_type": "nemotron-nas",
    "hidden_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": None,
    "intermediate_size": None,
    "vocab_size": 100,
    "block_configs": [
        {"attention": NAS_ATTENTION, "ffn": NAS_FFN},
        {"attention": {"no_op": True, "n_heads_in_group": None}, "ffn": NAS_FFN | {"ffn_mult": 1.0}},
        {"attention": {"no_op": False, "replace_with_linear": True}, "ffn": {"no_op": True}},
    ],
}


def kinds(profile: ArchitectureProfile) -> list[tuple[str, str]]:
    return [(layer.mixer.kind, layer.feed_forward.kind) for layer in profile.layers]


class TestGatedDeltaNet:
    def test_every_fourth_layer_is_attention(self, files_of: Files) -> None:
        profile = read_profile(files_of(QWEN))
        assert [mixer for mixer, _ in kinds(profile)] == (["gated_deltanet"] * 3 + ["gqa"]) * 2

    def test_the_list_of_kinds_counts_before_the_interval(self, files_of: Files) -> None:
        listed = ["full_attention"] + ["linear_attention"] * 7
        profile = read_profile(files_of(QWEN | {"layer_types": listed}))
        assert [mixer for mixer, _ in kinds(profile)] == ["gqa"] + ["gated_deltanet"] * 7
        assert profile.unused_config_keys == ()

    def test_what_a_sequence_keeps(self, files_of: Files) -> None:
        """Six value heads of 8 x 16 in float32, and three past inputs of 2 x 2 x 8 + 6 x 16 channels."""
        sizes = cache_sizes(read_profile(files_of(QWEN)))
        assert sizes.state_bytes_per_sequence == 6 * (6 * 8 * 16 * 4 + 3 * (2 * 2 * 8 + 6 * 16) * 2)
        assert sizes.kv_bytes_per_token == 2 * (2 * 2 * 32) * 2

    def test_the_query_carries_the_gate(self, files_of: Files) -> None:
        profile = read_profile(files_of(QWEN))
        shapes = {spec.path: spec.shape for spec in expected_tensors(profile) if spec.layer == 3}
        assert shapes["layers.3.mixer.q_proj.weight"] == (2 * 4 * 32, 64)
        plain = read_profile(files_of(QWEN | {"attn_output_gate": False}))
        shapes = {spec.path: spec.shape for spec in expected_tensors(plain) if spec.layer == 3}
        assert shapes["layers.3.mixer.q_proj.weight"] == (4 * 32, 64)

    def test_a_quarter_of_the_head_is_rotated_where_nothing_is_said(self, files_of: Files) -> None:
        mixer = read_profile(files_of(QWEN)).layers[3].mixer
        assert isinstance(mixer, GroupedQueryAttention) and mixer.rope is not None
        assert mixer.rope.dim == 8

    def test_the_predictor_stands_beside_the_total(self, files_of: Files) -> None:
        with_it, without = (
            count_parameters(read_profile(files_of(QWEN | {"mtp_num_hidden_layers": n}))) for n in (1, 0)
        )
        attention = 2 * 4 * 32 * 64 + 2 * 2 * 32 * 64 + 4 * 32 * 64 + 2 * 32
        experts = 8 * 64 + 8 * 3 * 24 * 64 + 3 * 40 * 64 + 64
        assert with_it.groups["mtp"] == attention + experts + 2 * 64 + (2 * 64 * 64 + 3 * 64)
        assert with_it.total == without.total and without.groups["mtp"] == 0

    def test_value_heads_share_key_heads(self, files_of: Files) -> None:
        with pytest.raises(InputError, match="6 value heads cannot share 4 key heads"):
            read_profile(files_of(QWEN | {"linear_num_key_heads": 4}))

    def test_operators_of_both_kinds(self, files_of: Files) -> None:
        profile = read_profile(files_of(QWEN))
        first = layer_operators(profile, profile.layers[0])
        assert {"causal_conv1d", "gated_delta_chunk", "gated_delta_recurrent", "gated_rms_norm"} <= set(first)
        delta = next(need for need in operators_needed(profile) if need.name == "gated_delta_recurrent")
        assert delta.shapes == {"key_heads": 2, "value_heads": 6, "head_dim": 8, "value_dim": 16}
        assert delta.phases == ("decode",) and delta.layers == (0, 1, 2, 4, 5, 6)


class TestNemotronH:
    def test_a_layer_is_one_branch(self, files_of: Files) -> None:
        profile = read_profile(files_of(NEMOTRON))
        assert kinds(profile) == [("mamba2", "none"), ("none", "moe"), ("gqa", "none"), ("none", "dense")]
        assert [layer.norms for layer in profile.layers] == [("mixer_norm",), ("ffn_norm",)] * 2
        names = {spec.name for spec in expected_tensors(profile) if spec.group == "norm"}
        assert names == {*(f"backbone.layers.{n}.norm.weight" for n in range(4)), "backbone.norm_f.weight"}

    @pytest.mark.parametrize(
        "words", [["mamba", "moe", "attention", "mlp"], ["linear_attention", "moe", "full_attention", "mlp"]]
    )
    def test_words_say_the_same_as_letters(self, files_of: Files, words: list[str]) -> None:
        config = {key: value for key, value in NEMOTRON.items() if key != "hybrid_override_pattern"}
        assert kinds(read_profile(files_of(config | {"layers_block_type": words}))) == kinds(
            read_profile(files_of(NEMOTRON))
        )

    def test_what_a_sequence_keeps(self, files_of: Files) -> None:
        sizes = cache_sizes(read_profile(files_of(NEMOTRON)))
        assert sizes.state_bytes_per_sequence == 8 * 12 * 16 * 4 + 3 * (8 * 12 + 2 * 2 * 16) * 2

    def test_experts_have_no_gate_and_work_in_the_latent_space(self, files_of: Files) -> None:
        profile = read_profile(files_of(NEMOTRON))
        spec = profile.layers[1].feed_forward
        assert isinstance(spec, RoutedExperts) and not spec.gated and spec.activation.name == "relu2"
        groups = count_parameters(profile).groups
        assert groups["routed_experts"] == 6 * 2 * 40 * 32
        assert groups["shared_experts"] == 2 * 56 * 64
        assert groups["latent_moe_proj"] == 2 * 32 * 64

    def test_predictors_repeat_their_pattern(self, files_of: Files) -> None:
        profile = read_profile(files_of(NEMOTRON))
        assert profile.mtp is not None and profile.mtp.depths == 2
        names = {spec.name for spec in expected_tensors(profile) if spec.group == "mtp"}
        joins = {name for name in names if "eh_proj" in name}
        assert joins == {"mtp.layers.0.eh_proj.weight", "mtp.layers.2.eh_proj.weight"}
        assert {"mtp.layers.1.final_layernorm.weight", "mtp.layers.3.final_layernorm.weight"} <= names

    def test_infinity_is_no_bound_however_it_is_written(self, files_of: Files) -> None:
        for most in (float("inf"), 1e308, {"__float__": "Infinity"}):
            mixer = read_profile(files_of(NEMOTRON | {"time_step_limit": [0.0, most]})).layers[0].mixer
            assert isinstance(mixer, Mamba2) and mixer.step_limit == (0.0, None)

    @pytest.mark.parametrize(
        ("edit", "words"),
        [
            ({"num_hidden_layers": 5}, "says 5 layers where the list of their kinds has 4"),
            ({"hybrid_override_pattern": "MX*E"}, "layer kind 'X' is not known here"),
            ({"n_groups": 3}, "8 heads do not divide into 3 groups"),
            ({"time_step_limit": [1.0, 0.5]}, "two numbers, the least first"),
        ],
    )
    def test_contradictions(self, files_of: Files, edit: dict[str, Any], words: str) -> None:
        with pytest.raises(InputError, match=words):
            read_profile(files_of(NEMOTRON | edit))


class TestLing:
    def test_the_last_of_a_group_and_an_incomplete_group_are_attention(self, files_of: Files) -> None:
        profile = read_profile(files_of(LING))
        assert [mixer for mixer, _ in kinds(profile)] == (["lightning"] * 3 + ["mla"]) * 2 + ["mla"] * 2

    def test_lightning_keeps_a_matrix_per_head(self, files_of: Files) -> None:
        sizes = cache_sizes(read_profile(files_of(LING)))
        assert sizes.state_bytes_per_sequence == 6 * 4 * 16 * 16 * 4

    def test_output_norms_come_in_groups(self, files_of: Files) -> None:
        mixer = read_profile(files_of(LING)).layers[0].mixer
        assert isinstance(mixer, LightningAttention) and mixer.norm_groups == 2
        assert mixer.rope is not None and mixer.rope.dim == 8

    def test_the_same_model_type_with_words_of_the_delta_rule(self, files_of: Files) -> None:
        profile = read_profile(files_of(LING_3))
        assert [mixer for mixer, _ in kinds(profile)] == (["kda"] * 3 + ["mla"]) * 2 + ["mla"] * 2
        mixer = profile.layers[0].mixer
        assert isinstance(mixer, KimiDeltaAttention)
        assert (mixer.full_rank_gate, mixer.full_rank_decay, mixer.gate_lower_bound) == (True, True, -5.0)
        names = {spec.name: spec.shape for spec in expected_tensors(profile)}
        assert names["model.layers.0.attention.o_proj.weight"] == (64, 64)
        assert names["model.layers.3.attention.dense.weight"] == (64, 64)
        assert names["model.layers.3.attention.g_proj.weight"] == (4, 64)

    def test_clamps_reach_only_the_layers_that_have_one(self, files_of: Files) -> None:
        layers = read_profile(files_of(LING_3)).layers
        routed = [layer.feed_forward for layer in layers if isinstance(layer.feed_forward, RoutedExperts)]
        assert [spec.activation.limit for spec in routed] == [None] * 8 + [4.0]
        assert [spec.shared_activation and spec.shared_activation.limit for spec in routed] == [None] * 7 + [5.0, 7.0]

    def test_a_list_of_clamps_that_ends_early_is_refused(self, files_of: Files) -> None:
        with pytest.raises(InputError, match="has no entry for layer 3"):
            read_profile(files_of(LING_3 | {"expert_swiglu_limit_list": [0, 0, 0]}))


class TestNemotronNas:
    def test_blocks_are_thinned_out_one_by_one(self, files_of: Files) -> None:
        profile = read_profile(files_of(NAS))
        assert kinds(profile) == [("gqa", "dense"), ("none", "dense"), ("linear_map", "none")]
        assert [layer.norms for layer in profile.layers] == [("mixer_norm", "ffn_norm"), ("ffn_norm",), ("mixer_norm",)]
        widths = [s.width for layer in profile.layers if isinstance(s := layer.feed_forward, DenseFeedForward)]
        assert widths == [1024, 512]  # two thirds of 2.625 x 512 and of 512, up to a multiple of 256
        assert cache_sizes(profile).kv_bytes_per_token == 2 * 4 * 64 * 2

    def test_what_a_block_says_and_nothing_explains_is_refused(self, files_of: Files) -> None:
        blocks = [{"attention": NAS_ATTENTION | {"num_sink_tokens": 4}, "ffn": NAS_FFN}] * 3
        with pytest.raises(InputError, match=r"block_configs\[0\]\.attention\.num_sink_tokens.*4 is not known here"):
            read_profile(files_of(NAS | {"block_configs": blocks}))


def test_a_state_is_kept_by_every_linear_mixer(files_of: Files) -> None:
    """A mixer that remembers the past keeps it somewhere: in the paged cache or in a state."""
    for config in (QWEN, NEMOTRON, LING, LING_3):
        for layer in read_profile(files_of(config)).layers:
            sizes = [plane.elements for plane in layer.cache_planes()]
            sizes += [state.elements for state in layer.state_shapes()]
            assert bool(sizes) == (layer.mixer.kind != "none")
            assert all(size > 0 for size in sizes)


def test_gated_delta_net_is_cut_between_heads(files_of: Files) -> None:
    profile = read_profile(files_of(QWEN))
    assert isinstance(profile.layers[0].mixer, GatedDeltaNet)
    units = {spec.path: spec.shard_units for spec in expected_tensors(profile) if spec.layer == 0}
    assert units["layers.0.mixer.in_qkv_proj.weight"] == 2  # key heads, the fewer of the two
    assert units["layers.0.mixer.out_proj.weight"] == 6


FAMILIES = (
    *("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "kimi_linear", "lfm2", "lfm2_moe"),
    *("lfm2_vl", "jamba", "bamba", "nemotron_h", "nemotron-nas", "olmo_hybrid", "bailing_hybrid", "minimax_m1"),
    *("zaya", "inkling_text"),
)


def corpus() -> list[Path]:
    """Real configs of these families, where the corpus is there."""
    found = []
    for folder in sorted(CORPUS.glob("*--*")) if CORPUS.is_dir() else ():
        truth = json.loads((folder / "truth.json").read_text("utf-8"))
        model_type = json.loads((folder / "config.json").read_text("utf-8"))["model_type"]
        if model_type in FAMILIES and truth.get("params_by_group"):
            found.append(folder)
    return found


@pytest.mark.parametrize("folder", corpus(), ids=lambda folder: folder.name)
def test_real_configs(folder: Path) -> None:
    truth = json.loads((folder / "truth.json").read_text("utf-8"))
    profile = read_profile(resolve(str(folder / "config.json")))
    counts = count_parameters(profile)
    # Correction biases of routers are buffers to the library that counted, and stored parameters here.
    biases = sum(prod(b["shape"]) * b["count"] for b in truth.get("persistent_buffers", {}).values())
    groups = {name: count for name, count in counts.groups.items() if count and name not in ("mtp", "vision")}
    wanted = {name: count for name, count in truth["params_by_group"].items() if name != "vision"}
    if profile.family == "zaya":
        # Counted there by names: the scales of the residual stream as an MLP, and as nothing in particular.
        wanted["residual_mixing"] = wanted.pop("other") + wanted.pop("dense_mlp")
    if biases:
        wanted["router"] += biases
    assert groups == wanted
    assert counts.active == truth["active_params_per_token"] + biases
    sizes = cache_sizes(profile)
    planes = truth["kv_cache_per_token"]
    assert sizes.kv_bytes_per_token == 2 * sum(p["elems"] * p["layers"] for p in planes if "window" not in p)
    windows = [2 * p["elems"] * p["layers"] * p["window"] for p in planes if "window" in p]
    assert sizes.window_bytes_per_sequence == sum(windows)
    state = sum(state_bytes(entry) for entry in truth["linear_state"])
    if profile.family == "zaya":
        # The second convolution looks back as far as the first, and half of each value waits for the next token.
        state = 2 * state + 40 * 128 * 2
    assert sizes.state_bytes_per_sequence == state
    # Towers and packings are read elsewhere.
    keys = [key for key in profile.unused_config_keys if "vision" not in key and "projector" not in key]
    assert [key for key in keys if key != "downsample_factor"] == []


def state_bytes(entry: dict[str, Any]) -> int:
    """The corpus counts all taps of a convolution, of which the last is the current input."""
    total = 0
    for part in entry["parts"]:
        taps = part.get("conv_kernel", 1)
        total += part["recurrent"] * 4 + part["conv"] // taps * (taps - 1) * 2
    return total * int(entry["layers"])
