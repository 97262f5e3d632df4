from __future__ import annotations

import pytest

from day0.errors import InputError
from day0.profile.profile import QuantizationSpec
from day0.profile.read import read_profile

MXFP4 = {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}
SPEC = QuantizationSpec("compressed-tensors", "mxfp4", 32, ("routed_experts",))


def test_kimi_packs_its_routed_experts(profile_of) -> None:
    assert profile_of("kimi-k3").quantization == SPEC


def test_the_section_may_stand_at_the_top(profile_of, absent) -> None:
    profile = profile_of("kimi-k3", text_config__quantization_config=absent, quantization_config=MXFP4)
    assert profile.quantization == SPEC
    assert profile.unused_config_keys == ()


def test_no_section_means_plain_weights(profile_of, absent) -> None:
    profile = profile_of("kimi-k3", text_config__quantization_config=absent)
    assert (profile.quantization, profile.findings) == (None, ())


@pytest.mark.parametrize(
    "section",
    [
        {"quant_method": "fp8"},
        {"quant_method": "gptq", "bits": 4},
        {"quant_method": "compressed-tensors", "format": "pack-quantized"},
        {"quant_method": None},
        {},
    ],
)
@pytest.mark.parametrize("recipe", ["llama-3.1-8b", "kimi-k3"])
def test_a_packing_that_is_not_read_is_an_error_finding(profile_of, absent, recipe: str, section: dict) -> None:
    edits = {"quantization_config": section}
    if recipe == "kimi-k3":
        edits["text_config__quantization_config"] = absent
    profile = profile_of(recipe, **edits)
    assert profile.quantization is None
    (finding,) = profile.findings
    assert (finding.code, finding.severity) == ("quantization-not-read", "error")
    assert finding.where == "config.json: quantization_config"
    assert profile.unused_config_keys == (), "the section as a whole is accounted for"


def test_mxfp4_of_a_family_that_packs_nothing_is_not_taken_for_plain_weights(profile_of) -> None:
    profile = profile_of("llama-3.1-8b", quantization_config=MXFP4)
    assert profile.quantization is None
    assert [finding.code for finding in profile.findings] == ["quantization-not-read"]


def test_a_separate_file_is_seen(config_of, files_of) -> None:
    extras = {"hf_quant_config.json": {"quantization": {"quant_algo": "NVFP4"}}}
    (finding,) = read_profile(files_of(config_of("llama-3.1-8b"), extras=extras)).findings
    assert "'modelopt' (NVFP4)" in finding.message
    assert finding.where == "hf_quant_config.json: quantization"


@pytest.mark.parametrize("size", [0, -1, 16, 64, True, "32"])
def test_another_group_size_contradicts_the_format(profile_of, size) -> None:
    groups = {"group_0": {"weights": {"group_size": size}}}
    with pytest.raises(InputError, match="mxfp4 has groups of 32") as caught:
        profile_of("kimi-k3", text_config__quantization_config=MXFP4 | {"config_groups": groups})
    assert caught.value.where.endswith("quantization_config.config_groups.group_0.weights.group_size")


@pytest.mark.parametrize("groups", [None, [], {}, {"a": None}, {"a": {"weights": []}}, {"a": {"weights": {}}}])
def test_groups_that_say_nothing_are_no_matter(profile_of, groups) -> None:
    assert (
        profile_of("kimi-k3", text_config__quantization_config=MXFP4 | {"config_groups": groups}).quantization == SPEC
    )
