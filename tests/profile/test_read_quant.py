"""Where the quantisation section is found and what it comes to; the formats themselves are in test_quant_formats."""

from __future__ import annotations

import pytest

from day0.errors import InputError
from day0.profile.profile import ArchitectureProfile

MXFP4 = {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}


def packed_groups(profile: ArchitectureProfile) -> dict[str, str]:
    """Parameter group -> format of its packed matrices."""
    assert profile.quantization is not None
    return {packing.group: packing.formats[0].name for packing in profile.quantization.groups}


def test_kimi_packs_its_routed_experts_and_nothing_else(profile_of) -> None:
    profile = profile_of("kimi-k3")
    assert packed_groups(profile) == {"routed_experts": "mxfp4"}
    assert profile.quantization.native


def test_the_section_may_stand_at_the_top(profile_of, absent) -> None:
    profile = profile_of("kimi-k3", text_config__quantization_config=absent, quantization_config=MXFP4)
    assert packed_groups(profile) == {"routed_experts": "mxfp4"}
    assert profile.unused_config_keys == ()


def test_no_section_means_plain_weights(profile_of, absent) -> None:
    profile = profile_of("kimi-k3", text_config__quantization_config=absent)
    assert (profile.quantization, profile.findings) == (None, ())


@pytest.mark.parametrize("recipe", ["llama-3.1-8b", "kimi-k3"])
def test_a_method_nobody_knows_is_an_error_finding(profile_of, absent, recipe: str) -> None:
    edits = {"quantization_config": {"quant_method": "unheard-of"}}
    if recipe == "kimi-k3":
        edits["text_config__quantization_config"] = absent
    profile = profile_of(recipe, **edits)
    assert profile.quantization is None
    (finding,) = profile.findings
    assert (finding.code, finding.severity) == ("quantization-not-read", "error")
    assert finding.where == "config.json: quantization_config"
    assert "unheard-of" in finding.message
    assert profile.unused_config_keys == (), "the section as a whole is accounted for"


def test_what_the_runtime_does_not_read_is_said(profile_of) -> None:
    profile = profile_of("llama-3.1-8b", quantization_config=MXFP4)
    assert packed_groups(profile)["attention"] == "mxfp4"
    assert not profile.quantization.native
    assert "quantization-not-native" in [finding.code for finding in profile.findings]


@pytest.mark.parametrize("size", [0, -1, 16, 64, True, "32"])
def test_another_group_size_contradicts_the_format(profile_of, size) -> None:
    groups = {"group_0": {"weights": {"group_size": size}}}
    with pytest.raises(InputError) as caught:
        profile_of("kimi-k3", text_config__quantization_config=MXFP4 | {"config_groups": groups})
    assert "config_groups.group_0.weights.group_size" in f"{caught.value.where} {caught.value.message}"
