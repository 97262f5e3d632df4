from __future__ import annotations

import pytest

from day0.errors import CannotSay
from day0.profile.parameters import GROUPS, count_parameters, weight_formats
from day0.profile.read import read_profile
from day0.profile.tensors import expected_tensors

RECIPES = ("llama-3.1-8b", "qwen3-0.6b", "mixtral-8x7b", "qwen3-30b-a3b", "kimi-k3")

# Total, active, active without the input table: published or counted by hand from the sizes.
COUNTS = {
    "llama-3.1-8b": (8_030_261_248, 8_030_261_248, 7_504_924_672),
    "qwen3-0.6b": (596_049_920, 596_049_920, 596_049_920),
    "mixtral-8x7b": (46_702_792_704, 12_879_925_248, 12_748_853_248),
    "qwen3-30b-a3b": (30_532_122_624, 3_353_032_704, 3_041_867_776),
    "kimi-k3": (2_779_931_834_976, 105_364_017_760, 104_189_612_640),
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_totals(profile_of, recipe: str) -> None:
    counts = count_parameters(profile_of(recipe))
    assert (counts.total, counts.active, counts.active_without_input_embedding) == COUNTS[recipe]
    assert tuple(counts.groups) == GROUPS
    assert sum(counts.groups.values()) == counts.total


def test_llama_by_hand(profile_of) -> None:
    groups = count_parameters(profile_of("llama-3.1-8b")).groups
    assert groups["embed"] == groups["lm_head"] == 128256 * 4096
    assert groups["attention"] == 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096)
    assert groups["dense_mlp"] == 32 * 3 * 4096 * 14336
    assert groups["norm"] == (2 * 32 + 1) * 4096


def test_kimi_by_hand(profile_of) -> None:
    groups = {name: count for name, count in count_parameters(profile_of("kimi-k3")).groups.items() if count}
    hidden, width, latent, inner = 7168, 96 * 128, 3584, 3072
    kda = 5 * width * hidden + 3 * width * 4 + 2 * (128 * hidden) // 2 + width * 128 + 96 * hidden + 96 + width + 128
    mla = 1536 * hidden + 1536 + 96 * 192 * 1536 + 576 * hidden + 512 + 96 * 256 * 512 + 2 * 96 * 128 * hidden
    assert groups == {
        "embed": 163840 * hidden,
        "lm_head": 163840 * hidden,
        "linear_mixer": 69 * kda,
        "attention": 24 * mla,
        "dense_mlp": 3 * hidden * 33792,
        "routed_experts": 92 * 896 * 3 * latent * inner,
        "shared_experts": 92 * 3 * hidden * 2 * inner,
        "router": 92 * (896 * hidden + 896),
        "latent_moe_proj": 92 * (2 * hidden * latent + latent),
        "residual_mixing": (2 * 93 + 1) * 2 * hidden,
        "norm": (2 * 93 + 1) * hidden,
        "vision": 447_358_976,
    }


def test_a_tied_head_counts_once_and_its_table_is_used(profile_of) -> None:
    tied, untied = (count_parameters(profile_of("qwen3-0.6b", tie_word_embeddings=tie)) for tie in (True, False))
    assert untied.total - tied.total == 151936 * 1024
    assert tied.active_without_input_embedding == tied.active
    assert untied.active_without_input_embedding == tied.active


def test_packing_changes_no_count(profile_of, absent) -> None:
    plain = profile_of("kimi-k3", text_config__quantization_config=absent)
    assert count_parameters(plain) == count_parameters(profile_of("kimi-k3"))


def test_every_group_is_of_the_contract(profile_of) -> None:
    for recipe in RECIPES:
        assert {spec.group for spec in expected_tensors(profile_of(recipe))} <= set(GROUPS)


def test_formats(profile_of, absent) -> None:
    formats = weight_formats(profile_of("kimi-k3"))
    experts = 92 * 896 * 3 * 3584 * 3072
    assert formats["mxfp4"] == experts // 2 + experts // 32, "four bits, and a scale byte for 32"
    assert sum(formats.values()) == 1_560_860_324_864
    assert formats.keys() == {"bf16", "f32", "mxfp4"}
    assert weight_formats(profile_of("llama-3.1-8b")) == {"bf16": 2 * COUNTS["llama-3.1-8b"][0]}
    assert "mxfp4" not in weight_formats(profile_of("kimi-k3", text_config__quantization_config=absent))


def test_an_unknown_family_cannot_be_counted(files_of) -> None:
    with pytest.raises(CannotSay):
        count_parameters(read_profile(files_of({"model_type": "novel"})))
