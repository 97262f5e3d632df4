"""What is stored decides over what the config says of it, and the difference is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from day0.profile.parameters import count_parameters, weight_formats
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.profile.tensors import TensorComparison, compare_tensors, expected_tensors
from day0.source.model_files import TensorHeader

FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "*.self_attn*"]}
INT4 = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "ignore": ["lm_head"],
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}}},
}


@pytest.fixture
def shown(config_of, files_of, headers_of):
    """`shown(stored, declared)`: profile and comparison of files packed as one section says and described by another.

    `edit` changes the headers on the way.
    """

    def read(
        stored: dict[str, Any], declared: dict[str, Any], *, recipe: str = "llama-3.1-8b", edit=lambda headers: headers
    ) -> tuple[ArchitectureProfile, TensorComparison]:
        headers = edit(headers_of(read_profile(files_of(config_of(recipe, quantization_config=stored)))))
        files = files_of(config_of(recipe, quantization_config=declared), tensors=headers)
        profile = read_profile(files)
        return profile, compare_tensors(profile, files)

    return read


def codes(profile: ArchitectureProfile) -> list[str]:
    return [found.code for found in profile.findings if found.code != "quantization-not-native"]


def message(profile: ArchitectureProfile) -> str:
    return next(found.message for found in profile.findings if found.code == "quantization-differs")


def test_files_as_declared_have_nothing_to_tell(shown) -> None:
    for section in (FP8, NVFP4, INT4):
        profile, comparison = shown(section, section)
        assert (comparison.sound, comparison.findings, codes(profile)) == (True, (), [])
        assert dict(profile.quantization.stored) == {}


def test_modules_that_a_list_forgot_are_stored_plain(shown) -> None:
    kept = FP8 | {"modules_to_not_convert": ["lm_head", "self_attn"]}
    profile, comparison = shown(kept, FP8)
    assert (comparison.sound, comparison.findings) == (True, ())
    assert codes(profile) == ["quantization-differs"]
    assert message(profile).startswith("128 matrices are stored plain although the section packs them: model.layers.0.")
    assert [str(group) for group in profile.quantization.groups] == ["dense_mlp: fp8_block"]


def test_modules_that_a_list_names_and_the_file_packs(shown) -> None:
    profile, comparison = shown(FP8, FP8 | {"modules_to_not_convert": ["lm_head", "model.layers.3"]})
    assert comparison.sound
    assert message(profile).startswith("7 matrices are stored packed although the section leaves them plain")


def test_another_format_of_the_section_than_the_one_it_gives_a_module(shown) -> None:
    def mixed(attention: str, mlp: str) -> dict[str, Any]:
        names = {f"model.layers.{n}.self_attn.{x}_proj": {"quant_algo": attention} for n in range(32) for x in "qkvo"}
        names |= {
            f"model.layers.{n}.mlp.{x}_proj": {"quant_algo": mlp} for n in range(32) for x in ("gate", "up", "down")
        }
        return {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": names}

    profile, comparison = shown(mixed("FP8", "NVFP4"), mixed("NVFP4", "FP8"))
    assert comparison.sound
    assert message(profile).startswith("224 matrices are packed in another format than the section says")


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F8_E8M0"])
def test_scales_may_have_any_dtype(shown, dtype: str) -> None:
    def edit(headers: dict[str, TensorHeader]) -> dict[str, TensorHeader]:
        return {
            n: TensorHeader(dtype, h.shape, h.shard, h.begin, h.end) if n.endswith("scale_inv") else h
            for n, h in headers.items()
        }

    profile, comparison = shown(FP8, FP8, edit=edit)
    assert (comparison.sound, comparison.findings, codes(profile)) == (True, (), [])
    assert weight_formats(profile)["fp8_block"] < weight_formats(replace(profile, quantization=None))["bf16"]


def test_scales_may_be_spelled_as_deepseek_spells_them(shown) -> None:
    def edit(headers: dict[str, TensorHeader]) -> dict[str, TensorHeader]:
        return {name.replace("weight_scale_inv", "scale"): header for name, header in headers.items()}

    profile, comparison = shown(FP8, FP8, edit=edit)
    assert (comparison.sound, codes(profile)) == (True, [])


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_number_for_a_whole_matrix_is_a_scalar_or_a_list_of_one(shown, shape: tuple[int, ...]) -> None:
    def edit(headers: dict[str, TensorHeader]) -> dict[str, TensorHeader]:
        return {
            n: TensorHeader(h.dtype, shape, h.shard, h.begin, h.end) if n.endswith("scale_2") else h
            for n, h in headers.items()
        }

    _, comparison = shown(NVFP4, NVFP4, edit=edit)
    assert (comparison.sound, comparison.findings) == (True, ())


def test_scales_of_activations_may_be_missing_from_some_modules(shown) -> None:
    gone = "model.layers.5.mlp.up_proj.input_scale"
    profile, comparison = shown(NVFP4, NVFP4, edit=lambda h: {n: header for n, header in h.items() if n != gone})
    assert (comparison.sound, codes(profile)) == (True, [])
    assert list(profile.quantization.stored) == ["model.layers.5.mlp.up_proj.weight"]


def test_a_scale_that_is_needed_is_missing(shown) -> None:
    gone = "model.layers.5.mlp.up_proj.weight_scale"
    _, comparison = shown(NVFP4, NVFP4, edit=lambda h: {n: header for n, header in h.items() if n != gone})
    assert comparison.missing == (gone,)


def test_a_scale_of_the_wrong_shape_is_an_error(shown) -> None:
    wrong = "model.layers.5.mlp.up_proj.weight_scale"

    def edit(headers: dict[str, TensorHeader]) -> dict[str, TensorHeader]:
        return headers | {wrong: TensorHeader("F8_E4M3", (7, 9), "model.safetensors", 0, 1)}

    _, comparison = shown(NVFP4, NVFP4, edit=edit)
    (finding,) = comparison.findings
    assert (finding.code, finding.severity) == ("tensor-shape", "error")
    assert wrong in finding.where


def test_one_expert_without_its_scale_is_found(shown) -> None:
    gone = "model.layers.5.mlp.experts.17.up_proj.weight_scale"
    _, comparison = shown(
        NVFP4, NVFP4, recipe="qwen3-30b-a3b", edit=lambda h: {n: header for n, header in h.items() if n != gone}
    )
    assert comparison.missing == (gone,)


def test_scales_of_the_cache_are_a_note(shown) -> None:
    def scales() -> Iterator[str]:
        for layer in range(32):
            yield f"model.layers.{layer}.self_attn.k_proj.k_scale"
            yield f"model.layers.{layer}.self_attn.v_proj.v_scale"

    def edit(headers: dict[str, TensorHeader]) -> dict[str, TensorHeader]:
        return headers | {name: TensorHeader("F32", (), "model.safetensors", 0, 4) for name in scales()}

    section = NVFP4 | {"kv_cache_quant_algo": "FP8"}
    profile, comparison = shown(section, section, edit=edit)
    assert (comparison.sound, comparison.unexpected) == (True, ())
    assert [found.code for found in comparison.findings] == ["cache-scales-stored"]
    assert profile.quantization.kv_cache == "fp8"
    assert codes(profile) == ["kv-cache-quantized"]


def test_entries_of_a_list_that_name_nothing(profile_of) -> None:
    kept = ["lm_head", "model.layers.0.self_attn", "model.embed_tokens", "model.layers.0.input_layernorm", "model.typo"]
    profile = profile_of("llama-3.1-8b", quantization_config=FP8 | {"modules_to_not_convert": kept})
    (finding,) = (found for found in profile.findings if found.code == "quantization-entry-idle")
    assert (finding.severity, finding.message) == (
        "note",
        "1 entries of its lists name no module of this model: model.typo",
    )


def test_a_tied_head_may_be_left_out_by_name(profile_of) -> None:
    kept = {"modules_to_not_convert": ["lm_head"]}
    profile = profile_of("llama-3.1-8b", tie_word_embeddings=True, quantization_config=FP8 | kept)
    assert codes(profile) == []


def test_kimi_k3s_lists_forget_what_its_files_keep_plain(config_of, files_of, headers_of) -> None:
    """Latent projections are outside of the lists and are stored plain; the family's table knows."""
    config = config_of("kimi-k3")
    bare = read_profile(files_of(config))
    assert bare.findings == ()
    assert bare.native
    files = files_of(config, tensors=headers_of(bare))
    profile = read_profile(files)
    assert compare_tensors(profile, files).sound
    assert profile.native
    assert codes(profile) == ["quantization-differs"]
    assert message(profile).startswith("184 matrices are stored plain although the section packs them")
    assert expected_tensors(profile) == expected_tensors(bare)


class TestStackedExperts:
    """Llama 4 keeps the experts of a layer in one tensor [experts, in, out]; packed releases may take them apart."""

    CONFIG: dict[str, Any] = {  # noqa: RUF012
        "architectures": ["Llama4ForCausalLM"],
        "model_type": "llama4_text",
        "torch_dtype": "bfloat16",
        "vocab_size": 64,
        "hidden_size": 128,
        "intermediate_size": 256,
        "intermediate_size_mlp": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 1,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
    }
    EXPERTS = "feed_forward.experts"

    def experts(self, profile: ArchitectureProfile) -> dict[str, tuple[str, tuple[int, ...]]]:
        specs = [spec for spec in expected_tensors(profile) if spec.layer == 0 and self.EXPERTS in spec.name]
        return {spec.name.partition(f"{self.EXPERTS}.")[2]: (spec.dtype, spec.shape) for spec in specs}

    def profile(self, files_of, section: dict[str, Any] | None, **fields: Any) -> ArchitectureProfile:
        return read_profile(files_of(self.CONFIG | {"quantization_config": section}, **fields))

    def test_plain(self, files_of) -> None:
        found = self.experts(self.profile(files_of, None))
        assert found == {"gate_up_proj": ("BF16", (4, 128, 512)), "down_proj": ("BF16", (4, 256, 128))}

    def test_blocks_keep_the_stack_and_its_order(self, files_of) -> None:
        section = {"quant_method": "fp8", "weight_block_size": [128, 64]}
        assert self.experts(self.profile(files_of, section)) == {
            "gate_up_proj": ("F8_E4M3", (4, 128, 512)),
            "gate_up_proj_scale_inv": ("F32", (4, 2, 4)),
            "down_proj": ("F8_E4M3", (4, 256, 128)),
            "down_proj_scale_inv": ("F32", (4, 4, 1)),
        }

    def test_packings_of_linear_layers_take_it_apart(self, files_of) -> None:
        assert self.experts(self.profile(files_of, INT4)) == {
            **{
                f"{{expert}}.{part}_proj.{leaf}": found
                for part in ("gate", "up")
                for leaf, found in {
                    "weight_packed": ("I32", (256, 16)),
                    "weight_scale": ("BF16", (256, 4)),
                    "weight_shape": ("I64", (2,)),
                }.items()
            },
            "{expert}.down_proj.weight_packed": ("I32", (128, 32)),
            "{expert}.down_proj.weight_scale": ("BF16", (128, 8)),
            "{expert}.down_proj.weight_shape": ("I64", (2,)),
        }

    @pytest.mark.parametrize("section", [FP8, INT4, NVFP4], ids=["fp8", "int4", "nvfp4"])
    def test_bytes_and_parameters_are_those_of_the_files(self, files_of, headers_of, section: dict[str, Any]) -> None:
        bare = self.profile(files_of, section)
        headers = headers_of(bare)
        files = files_of(self.CONFIG | {"quantization_config": section}, tensors=headers)
        profile = read_profile(files)
        assert compare_tensors(profile, files).sound
        assert expected_tensors(profile) == expected_tensors(bare)
        assert count_parameters(profile) == count_parameters(self.profile(files_of, None))

    def test_headers_say_whether_they_are_apart(self, files_of, headers_of) -> None:
        """FP8 with one scale per matrix, in a release that left the stacks whole."""
        section = {"quant_method": "fp8", "activation_scheme": "dynamic", "ignored_layers": ["lm_head"]}
        headers = headers_of(self.profile(files_of, section | {"weight_block_size": None}))
        stacked = {name.replace("_scale_inv", "_scale"): header for name, header in headers.items()}
        assert any(name.endswith("experts.gate_up_proj_scale") for name in stacked)
        profile = self.profile(files_of, section, tensors=stacked)
        files = files_of(self.CONFIG | {"quantization_config": section}, tensors=stacked)
        assert compare_tensors(profile, files).sound
        assert codes(profile) == []
