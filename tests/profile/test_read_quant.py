from __future__ import annotations

from typing import Any

import pytest

from day0.errors import InputError
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile

MXFP4 = {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}


def groups(profile: ArchitectureProfile) -> list[str] | None:
    return None if profile.quantization is None else [str(group) for group in profile.quantization.groups]


def codes(profile: ArchitectureProfile) -> list[str]:
    return [found.code for found in profile.findings]


def llama(profile_of, section: dict[str, Any]) -> ArchitectureProfile:
    return profile_of("llama-3.1-8b", quantization_config=section)


def moe(profile_of, section: dict[str, Any]) -> ArchitectureProfile:
    return profile_of("qwen3-30b-a3b", quantization_config=section)


class TestWhereItIsKept:
    def test_kimi_packs_its_routed_experts(self, profile_of) -> None:
        profile = profile_of("kimi-k3")
        assert groups(profile) == ["routed_experts: mxfp4"]
        assert (profile.native, profile.findings) == (True, ())
        assert profile.quantization.of("routed_experts").group_size == 32
        assert profile.quantization.of("attention") is None
        assert profile.quantization.section.endswith("text_config.quantization_config")

    def test_the_section_may_stand_at_the_top(self, profile_of, absent) -> None:
        profile = profile_of("kimi-k3", text_config__quantization_config=absent, quantization_config=MXFP4)
        assert groups(profile) == ["routed_experts: mxfp4"]
        assert profile.unused_config_keys == ()

    def test_the_section_may_have_its_old_name(self, profile_of) -> None:
        profile = profile_of("llama-3.1-8b", compression_config=FP8)
        assert groups(profile) == ["attention: fp8_block", "dense_mlp: fp8_block"]
        assert profile.unused_config_keys == ()

    def test_the_same_section_twice_is_one(self, profile_of) -> None:
        profile = profile_of("kimi-k3", text_config__quantization_config=MXFP4, quantization_config=MXFP4)
        assert groups(profile) == ["routed_experts: mxfp4"]

    def test_two_sections_that_differ_are_a_conflict(self, profile_of) -> None:
        profile = profile_of("kimi-k3", text_config__quantization_config=MXFP4, quantization_config=FP8)
        assert profile.quantization is None
        (finding,) = profile.findings
        assert (finding.code, finding.severity) == ("quantization-conflict", "error")
        assert "text_config.quantization_config" in finding.message

    def test_no_section_means_plain_weights(self, profile_of, absent) -> None:
        profile = profile_of("kimi-k3", text_config__quantization_config=absent)
        assert (profile.quantization, profile.findings) == (None, ())

    def test_a_file_of_its_own(self, config_of, files_of) -> None:
        section = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
        extras = {"hf_quant_config.json": {"producer": {"name": "modelopt"}, "quantization": section}}
        profile = read_profile(files_of(config_of("llama-3.1-8b"), extras=extras))
        assert groups(profile) == ["attention: nvfp4", "dense_mlp: nvfp4"]
        assert profile.quantization.kv_cache == "fp8"
        assert codes(profile) == ["kv-cache-quantized"]
        assert profile.findings[0].where == "hf_quant_config.json: quantization"

    @pytest.mark.parametrize(("algorithm", "conflict"), [("NVFP4", False), ("nvfp4", False), ("FP8", True)])
    def test_the_file_and_the_config_agree_or_not(self, config_of, files_of, algorithm: str, conflict: bool) -> None:
        extras = {"hf_quant_config.json": {"quantization": {"quant_algo": algorithm, "kv_cache_quant_algo": "FP8"}}}
        config = config_of("llama-3.1-8b", quantization_config=MODELOPT)
        profile = read_profile(files_of(config, extras=extras))
        assert ("quantization-conflict" in codes(profile)) is conflict
        if not conflict:
            assert profile.quantization.kv_cache == "fp8", "the file says what the config leaves out"

    def test_a_file_that_is_no_object(self, config_of, files_of) -> None:
        with pytest.raises(InputError, match="must be an object") as caught:
            read_profile(files_of(config_of("llama-3.1-8b"), extras={"hf_quant_config.json": {"quantization": []}}))
        assert caught.value.where == "hf_quant_config.json: quantization"

    @pytest.mark.parametrize("section", [None, {}])
    def test_an_empty_section_is_none(self, profile_of, section) -> None:
        assert llama(profile_of, section).quantization is None


class TestWhatIsNotRead:
    @pytest.mark.parametrize(
        ("section", "reason"),
        [
            ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "not read yet"),
            ({"quant_method": None, "bits": 4}, "not read yet"),
            ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, "no group of modules"),
            (MXFP4 | {"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparse"),
            (MODELOPT | {"quant_algo": "W3A5"}, "W3A5"),
            (MODELOPT | {"quant_algo": "MIXED_PRECISION"}, "without quantized_layers"),
            ({"quant_method": "gptq", "bits": 3}, "3-bit"),
            ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, "marlin"),
            ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "gemv"),
        ],
    )
    @pytest.mark.parametrize("recipe", ["llama-3.1-8b", "kimi-k3"])
    def test_is_an_error_finding(self, profile_of, absent, recipe: str, section: dict, reason: str) -> None:
        edits = {"quantization_config": section}
        if recipe == "kimi-k3":
            edits["text_config__quantization_config"] = absent
        profile = profile_of(recipe, **edits)
        assert profile.quantization is None
        (finding,) = profile.findings
        assert (finding.code, finding.severity) == ("quantization-not-read", "error")
        assert reason in finding.message
        assert finding.where == "config.json: quantization_config"
        assert profile.unused_config_keys == (), "the section as a whole is accounted for"

    @pytest.mark.parametrize(
        ("section", "where"),
        [
            ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size"),
            ({"quant_method": "fp8", "weight_block_size": [128, 0]}, "weight_block_size"),
            ({"quant_method": "fp8", "weight_block_size": "128x128"}, "weight_block_size"),
            (FP8 | {"modules_to_not_convert": "lm_head"}, "modules_to_not_convert"),
            (FP8 | {"modules_to_not_convert": ["re:("]}, "modules_to_not_convert"),
            (FP8 | {"activation_scheme": 7}, "activation_scheme"),
            (MODELOPT | {"group_size": 32}, "group_size"),
            ({"quant_method": "gptq", "bits": "four"}, "bits"),
            ({"quant_method": "gptq", "bits": 4, "group_size": 0}, "group_size"),
            (MXFP4 | {"config_groups": {"group_0": {"weights": {"group_size": 16}}}}, "weights.group_size"),
            (MXFP4 | {"config_groups": {"group_0": {"weights": {"group_size": "32"}}}}, "weights.group_size"),
            (MXFP4 | {"config_groups": {"group_0": {"weights": {}, "targets": "Linear"}}}, "group_0.targets"),
            (MXFP4 | {"config_groups": []}, "config_groups"),
        ],
    )
    def test_a_malformed_section_is_the_users_to_mend(self, profile_of, section: dict, where: str) -> None:
        with pytest.raises(InputError) as caught:
            llama(profile_of, section)
        assert caught.value.where.endswith(where)

    def test_groups_that_do_not_fit_a_row(self, profile_of, config_of, files_of) -> None:
        from day0.profile.tensors import expected_tensors

        profile = llama(profile_of, MODELOPT)
        assert expected_tensors(profile)
        config = config_of("llama-3.1-8b", quantization_config=MODELOPT, intermediate_size=14_340)
        with pytest.raises(InputError, match="rows of 14340 values do not split into groups of 16"):
            expected_tensors(read_profile(files_of(config)))


class TestWhichModules:
    def test_fp8_keeps_head_and_routers_by_itself(self, profile_of) -> None:
        assert groups(moe(profile_of, FP8)) == ["attention: fp8_block", "routed_experts: fp8_block"]

    def test_an_ignored_module_is_plain(self, profile_of) -> None:
        kept = FP8 | {"modules_to_not_convert": ["lm_head", "model.layers.0.self_attn"]}
        assert groups(moe(profile_of, kept)) == ["attention: fp8_block, plain", "routed_experts: fp8_block"]

    def test_compressed_tensors_takes_the_head_unless_told_not_to(self, profile_of) -> None:
        group = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}
        section = {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"g": group}}
        packed = ["attention: fp8_channel", "dense_mlp: fp8_channel"]
        assert groups(llama(profile_of, section)) == [*packed, "lm_head: fp8_channel"]
        assert groups(llama(profile_of, section | {"ignore": ["lm_head"]})) == packed

    def test_targets_by_name_come_before_those_by_class(self, profile_of) -> None:
        weights = {"num_bits": 4, "type": "int", "strategy": "group"}
        section = {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "ignore": ["lm_head"],
            "config_groups": {
                "all": {"targets": ["Linear"], "weights": weights | {"group_size": 128}},
                "mlp": {"targets": ["re:.*mlp.*"], "weights": weights | {"group_size": 32}},
            },
        }
        quantization = llama(profile_of, section).quantization
        assert quantization.of("attention").group_size == 128
        assert quantization.of("dense_mlp").group_size == 32

    def test_a_wildcard_means_linear_layers(self, profile_of) -> None:
        group = {"targets": ["re:.*mlp.*"], "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}}
        section = {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"g": group}}
        assert groups(moe(profile_of, section)) == ["routed_experts: fp8_tensor"], "the router is in mlp too"

    def test_an_algorithm_for_each_module(self, profile_of) -> None:
        layers = {f"model.layers.{n}.self_attn.q_proj": {"quant_algo": "FP8"} for n in range(48)}
        layers |= {f"model.layers.{n}.mlp.experts": {"quant_algo": "W4A16_NVFP4", "group_size": 16} for n in range(48)}
        layers["lm_head"] = {"quant_algo": "FP8"}
        section = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
        profile = moe(profile_of, section)
        assert groups(profile) == ["attention: fp8_tensor, plain", "routed_experts: nvfp4", "lm_head: fp8_tensor"]
        assert "quantization-entry-idle" not in codes(profile)

    def test_listed_experts_over_a_release_in_fp8(self, profile_of) -> None:
        layers = {f"model.layers.{n}.mlp.experts": {"quant_algo": "NVFP4", "group_size": 16} for n in range(48)}
        section = FP8 | {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers, "ignore": ["*.self_attn.*"]}
        assert groups(moe(profile_of, section)) == ["attention: fp8_block", "routed_experts: nvfp4"]

    def test_gptq_by_expression(self, profile_of) -> None:
        section = {"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True}
        section["dynamic"] = {"-:.*self_attn.*": {}, "+:.*down_proj": {"bits": 8, "group_size": 64}}
        assert groups(llama(profile_of, section)) == ["dense_mlp: gptq_int4, gptq_int8", "lm_head: gptq_int4"]

    def test_auto_round_leaves_sixteen_bits_alone(self, profile_of) -> None:
        section = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "packing_format": "auto_round:auto_awq"}
        section["extra_config"] = {"model.layers.3.mlp.up_proj": {"bits": 16}}
        assert groups(llama(profile_of, section)) == ["attention: awq_int4", "dense_mlp: awq_int4, plain"]

    def test_modelopt_without_a_list_leaves_the_head_alone(self, profile_of) -> None:
        bare = {"quant_method": "modelopt", "quant_algo": "FP8"}
        assert groups(llama(profile_of, bare)) == ["attention: fp8_tensor", "dense_mlp: fp8_tensor"]
        listed = bare | {"ignore": ["model.layers.0*"]}
        assert groups(llama(profile_of, listed))[-1] == "lm_head: fp8_tensor"


class TestTheCache:
    @pytest.mark.parametrize(
        ("section", "word"),
        [
            (MODELOPT | {"kv_cache_scheme": "FP8"}, "fp8"),
            (MODELOPT | {"kv_cache_quant_algo": "NVFP4"}, "nvfp4"),
            (MXFP4 | {"kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False}}, "fp8"),
            (MXFP4 | {"kv_cache_scheme": {"num_bits": 8, "type": "int"}}, "int8"),
            (MXFP4 | {"kv_cache_scheme": None}, None),
        ],
    )
    def test_its_dtype_is_noted(self, profile_of, section: dict, word: str | None) -> None:
        profile = llama(profile_of, section)
        assert profile.quantization.kv_cache == word
        assert ("kv-cache-quantized" in codes(profile)) is (word is not None)

    def test_a_cache_alone_leaves_weights_plain_and_the_runtime_able(self, profile_of) -> None:
        section = {"quant_method": "compressed-tensors", "config_groups": {}, "kv_cache_scheme": {"num_bits": 8}}
        profile = llama(profile_of, section)
        assert (groups(profile), profile.native, codes(profile)) == ([], True, ["kv-cache-quantized"])
