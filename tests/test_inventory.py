"""The inventory agrees with the tensors of the same profile, and follows what configs switch on and off."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from day0.inventory import OperatorNeed, inventory_findings, layer_operators, operators_needed
from day0.operators import OPERATORS
from day0.profile.profile import ArchitectureProfile, LatentAttention, NoMixer
from day0.profile.read import read_profile
from day0.profile.tensors import expected_tensors
from day0.source.model_files import ModelFiles
from day0.source.resolve import resolve

DECODER: dict[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 100,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "vocab_size": 101,
    "max_position_embeddings": 64,
    "torch_dtype": "bfloat16",
}
LLAMA = DECODER | {
    "model_type": "llama",
    "attention_bias": True,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}
QWEN3 = DECODER | {"model_type": "qwen3", "torch_dtype": "float16"}
MIXTRAL = DECODER | {"model_type": "mixtral", "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 16}
QWEN3_MOE = DECODER | {
    "model_type": "qwen3_moe",
    "num_experts": 7,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
    "mlp_only_layers": [1],
}
CONFIGS = {"llama": LLAMA, "qwen3": QWEN3, "mixtral": MIXTRAL, "qwen3_moe": QWEN3_MOE}


def profile_of(config: dict[str, Any]) -> ArchitectureProfile:
    return read_profile(ModelFiles("test", None, "config", None, config, "config.json", None, (), (), {}))


def profiles() -> dict[str, ArchitectureProfile]:
    own = {name: profile_of(config) for name, config in CONFIGS.items()}
    return own | {"kimi_k3": read_profile(resolve("recipe:kimi-k3"))}


def named(profile: ArchitectureProfile, name: str) -> list[OperatorNeed]:
    return [need for need in operators_needed(profile) if need.name == name]


def only(profile: ArchitectureProfile, name: str) -> OperatorNeed:
    (need,) = named(profile, name)
    return need


@pytest.mark.parametrize("family", ("llama", "qwen3", "mixtral", "qwen3_moe", "kimi_k3"))
class TestAnyFamily:
    def test_every_need_gives_every_fact_of_its_contract(self, family: str) -> None:
        needs = operators_needed(profiles()[family])
        assert needs
        for need in needs:
            contract = OPERATORS[need.name]
            assert set(need.shapes) == set(contract.model_axes), need
            assert set(need.attributes) == set(contract.attributes), need
            assert need.phases and set(need.phases) <= set(contract.phases)
            assert need.used_for

    def test_no_two_needs_are_the_same(self, family: str) -> None:
        keys = [(need.name, tuple(sorted(need.facts.items()))) for need in operators_needed(profiles()[family])]
        assert len(keys) == len(set(keys))

    def test_every_matrix_is_used_by_a_product_of_its_size(self, family: str) -> None:
        """What `expected_tensors` stores, the inventory multiplies with: neither may know a matrix alone."""
        profile = profiles()[family]
        products = {
            (need.shapes["out_features"], need.shapes["in_features"], layer)
            for need in named(profile, "linear")
            for layer in need.layers or (None,)
        }
        matrices = set()
        for spec in expected_tensors(profile):
            is_product = re.search(r"(_proj|router|latent_down|latent_up)\.weight$", spec.path)
            if is_product and not spec.experts and "kv_b_proj" not in spec.path and ".proj.weight" not in spec.path:
                matrices.add((*spec.shape, spec.layer))
            elif spec.path.startswith("vision.") and len(spec.shape) == 2:
                matrices.add((*spec.shape, None))
        assert matrices == products

    def test_layers_name_the_operators_that_the_needs_place_there(self, family: str) -> None:
        profile = profiles()[family]
        needs = operators_needed(profile)
        for layer in profile.layers:
            placed = {need.name for need in needs if layer.index in need.layers}
            assert set(layer_operators(profile, layer)) == placed


def test_what_every_decoder_needs_stands_in_order() -> None:
    names = [need.name for need in operators_needed(profile_of(LLAMA))]
    assert names[0] == "embedding_lookup"
    assert names[-2:] == ["lm_head", "sampling"]
    assert names.index("rope_table") < names.index("rope") < names.index("paged_gqa_attention")


def test_sizes_and_attributes_follow_the_config() -> None:
    llama = profile_of(LLAMA)
    attention = only(llama, "paged_gqa_attention")
    assert attention.shapes == {"heads": 6, "kv_heads": 2, "head_dim": 10}
    assert attention.attributes == {"scale": 10**-0.5, "window": None}
    assert attention.layers == (0, 1, 2)
    assert attention.dtype == "bfloat16"
    assert only(profile_of(QWEN3), "paged_gqa_attention").dtype == "float16"
    assert only(llama, "rope_table").attributes["scaling"] == "llama3"
    assert {need.shapes["heads"] for need in named(llama, "rope")} == {6, 2}
    assert only(profile_of(MIXTRAL), "paged_gqa_attention").attributes["window"] == 16


def test_bias_separates_products_of_one_size() -> None:
    square = LLAMA | {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 12, "intermediate_size": 48}
    flags = {need.attributes["bias"]: need.used_for for need in named(profile_of(square), "linear")}
    assert set(flags) == {True, False}
    assert "mixer.q_proj" in flags[True] and "ffn.up_proj" in flags[False]


def test_norms_of_heads_only_where_the_family_has_them() -> None:
    assert only(profile_of(QWEN3), "qk_norm").shapes["kv_heads"] == 2
    assert not named(profile_of(LLAMA), "qk_norm")


def test_a_hybrid_of_dense_and_routed_layers() -> None:
    profile = profile_of(QWEN3_MOE)
    assert only(profile, "silu_and_mul").layers == (1,)
    experts = only(profile, "routed_experts")
    assert experts.layers == (0, 2)
    assert experts.shapes == {"experts": 7, "top_k": 3, "expert_in": 48, "expert_width": 24}
    assert experts.attributes == {"activation": "silu", "weight_format": "bfloat16"}
    assert only(profile, "moe_router_topk_softmax").attributes["renormalize"] is False


class TestWhatNoRuleReads:
    """A profile may say more than the rules know; that must show, never pass."""

    profile = profile_of(QWEN3_MOE)

    def places(self, profile: ArchitectureProfile) -> list[str]:
        found = inventory_findings(profile)
        assert all(finding.severity == "error" and finding.code == "operators-incomplete" for finding in found)
        return [finding.where for finding in found]

    def first_layer(self, **changes: Any) -> ArchitectureProfile:
        first = replace(self.profile.layers[0], **changes)
        return replace(self.profile, layers=(first, *self.profile.layers[1:]))

    @pytest.mark.parametrize("family", ("llama", "qwen3", "mixtral", "qwen3_moe", "kimi_k3"))
    def test_our_families_are_read_entirely(self, family: str) -> None:
        assert self.places(profiles()[family]) == []

    def test_a_field_that_is_set_in_one_layer(self) -> None:
        experts = self.profile.layers[0].feed_forward
        bounded = replace(experts, activation=replace(experts.activation, linear_beta=2.0))
        place = "feed_forward.moe.activation.linear_beta = 2.0"
        assert self.places(self.first_layer(feed_forward=bounded)) == [place]

    def test_a_field_of_a_part_of_a_part(self) -> None:
        mixer = self.profile.layers[0].mixer
        turned = replace(mixer, rope=replace(mixer.rope, interleaved_sections=True))
        assert self.places(self.first_layer(mixer=turned)) == ["mixer.gqa.rope.interleaved_sections = True"]

    def test_a_kind_without_a_rule(self) -> None:
        @dataclass(frozen=True, slots=True)
        class Dream(NoMixer):
            kind: ClassVar[str] = "dream"

        profile = self.first_layer(mixer=Dream())
        assert self.places(profile) == ["mixer.dream"]
        assert "paged_gqa_attention" in {need.name for need in operators_needed(profile)}

    def test_norms_beyond_what_is_known(self) -> None:
        assert self.places(self.first_layer(norms=("mixer_norm", "ffn_norm", "odd_norm"))) == ["norm odd_norm"]

    def test_a_branch_that_is_not_there_needs_nothing(self) -> None:
        profile = self.first_layer(mixer=NoMixer(), norms=("ffn_norm",))
        assert self.places(profile) == []
        assert layer_operators(profile, profile.layers[0])[0] == "rms_norm"
        assert "paged_gqa_attention" not in layer_operators(profile, profile.layers[0])


def test_a_model_that_nobody_explains_has_no_needs() -> None:
    assert operators_needed(profile_of({"model_type": "unheard_of", "architectures": ["UnheardOf"]})) == ()


class TestKimiK3:
    """Facts of the published config: 93 layers, 69 of them KDA, the first dense, packed experts, a vision tower."""

    profile = read_profile(resolve("recipe:kimi-k3"))

    def test_delta_attention_has_a_form_for_prompts_and_one_for_decoding(self) -> None:
        chunk, step = only(self.profile, "kda_chunk"), only(self.profile, "kda_recurrent")
        assert (chunk.phases, step.phases) == (("prefill",), ("decode",))
        assert chunk.layers == step.layers and len(chunk.layers) == 69
        assert chunk.shapes == {"heads": 96, "head_dim": 128, "value_dim": 128}
        assert only(self.profile, "kda_gate").attributes == {"lower_bound": -5.0}

    def test_latent_attention_is_absorbed_and_never_rotated(self) -> None:
        attention = only(self.profile, "paged_mla_attention")
        assert attention.shapes == {"heads": 96, "latent_dim": 512, "rope_dim": 64, "cached_dim": 576}
        assert attention.layers[-2:] == (91, 92) and len(attention.layers) == 24
        assert not named(self.profile, "rope")
        folded = {(n.shapes["in_features"], n.shapes["out_features"]) for n in named(self.profile, "head_linear")}
        assert folded == {(128, 512), (512, 128)}

    def test_experts_stay_packed_and_work_in_latent_space(self) -> None:
        experts = only(self.profile, "routed_experts")
        assert experts.shapes == {"experts": 896, "top_k": 16, "expert_in": 3584, "expert_width": 3072}
        assert experts.attributes == {"activation": "situ", "weight_format": "mxfp4"}
        packed = {(n.shapes["rows"], n.shapes["columns"]) for n in named(self.profile, "mxfp4_dequantize")}
        assert packed == {(3072, 3584), (3584, 3072)}
        assert all(n.shapes["row_groups"] * 32 == n.shapes["columns"] for n in named(self.profile, "mxfp4_dequantize"))

    def test_the_residual_is_mixed_everywhere_but_before_the_first_mixer(self) -> None:
        mix = only(self.profile, "attention_residual_mix")
        assert len(mix.layers) == 93
        assert mix.used_for == ("ffn_res", "mixer_res", "output_res")
        assert mix.attributes["block_size"] == 12

    def test_images_are_part_of_prompts_only(self) -> None:
        for need in operators_needed(self.profile):
            if all(place.startswith("vision.") for place in need.used_for):
                assert need.phases == ("prefill",), need

    def test_a_rotated_latent_attention_needs_rope_on_its_key_slice(self) -> None:
        """The same family without NoPE: both queries and the one shared key slice are turned."""
        config = dict(resolve("recipe:kimi-k3").config)
        config["text_config"] = config["text_config"] | {"mla_use_nope": False}
        profile = profile_of(config)
        mixers = [layer.mixer for layer in profile.layers if isinstance(layer.mixer, LatentAttention)]
        assert mixers and all(mixer.rope is not None for mixer in mixers)
        assert {need.shapes["heads"] for need in named(profile, "rope")} == {96, 1}
        assert all(need.attributes["layout"] == "interleaved" for need in named(profile, "rope"))
