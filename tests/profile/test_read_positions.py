from __future__ import annotations

import pytest

from day0.errors import InputError

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


def rope(profile):
    ropes = {layer.mixer.rope for layer in profile.layers}
    assert len(ropes) == 1
    return ropes.pop()


def test_llama3_scaling(profile_of) -> None:
    found = rope(profile_of("llama-3.1-8b"))
    assert (found.theta, found.dim, found.layout, found.scaling) == (500000.0, 128, "neox", "llama3")
    assert dict(found.parameters) == {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192.0,
    }
    assert list(dict(found.parameters)) == sorted(dict(found.parameters))


@pytest.mark.parametrize("spelling", [None, {"rope_type": "default"}, {"type": "default"}, {}])
def test_no_scaling(profile_of, spelling) -> None:
    assert rope(profile_of("llama-3.1-8b", rope_scaling=spelling)).scaling == "none"


@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_both_words_for_the_rule(profile_of, key: str) -> None:
    found = rope(profile_of("qwen3-0.6b", rope_scaling={key: "linear", "factor": 2.0}))
    assert (found.scaling, found.parameters) == ("linear", (("factor", 2.0),))


def test_the_newer_section_carries_its_own_base(profile_of, absent) -> None:
    profile = profile_of(
        "llama-3.1-8b", rope_scaling=absent, rope_theta=absent, rope_parameters=YARN | {"rope_theta": 7.0}
    )
    assert (rope(profile).theta, rope(profile).scaling) == (7.0, "yarn")
    assert profile.unused_config_keys == profile.defaulted_config_keys == ()


def test_optional_numbers_of_yarn(profile_of) -> None:
    given = YARN | {"beta_fast": 16, "mscale": 0.0, "attention_factor": None}
    found = rope(profile_of("qwen3-0.6b", rope_scaling=given))
    assert dict(found.parameters) == {
        "factor": 4.0,
        "original_max_position_embeddings": 32768.0,
        "beta_fast": 16.0,
        "mscale": 0.0,
    }


@pytest.mark.parametrize(("recipe", "theta"), [("llama-3.1-8b", 1e4), ("mixtral-8x7b", 1e6), ("qwen3-0.6b", 1e4)])
def test_bases_where_none_is_said(profile_of, absent, recipe: str, theta: float) -> None:
    profile = profile_of(recipe, rope_theta=absent)
    assert rope(profile).theta == theta
    assert "rope_theta" in profile.defaulted_config_keys


@pytest.mark.parametrize(
    ("edits", "message", "field"),
    [
        ({"rope_scaling": {"rope_type": "novel"}}, "'novel' is not known", "rope_scaling.rope_type"),
        ({"rope_scaling": {"type": "novel"}}, "'novel' is not known", "rope_scaling.type"),
        ({"rope_scaling": {"type": "linear"}}, "is missing", "rope_scaling.factor"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "must be positive", "rope_scaling.factor"),
        (
            {"rope_scaling": YARN | {"original_max_position_embeddings": -1}},
            "must be positive",
            "rope_scaling.original_max_position_embeddings",
        ),
        ({"rope_scaling": YARN | {"factor": "4"}}, "must be a number", "rope_scaling.factor"),
        ({"rope_scaling": [1]}, "must be an object", "rope_scaling"),
        ({"rope_theta": -1.0}, "cannot rotate", "rope_theta"),
        ({"head_dim": 15}, "cannot rotate 15 of 15 channels", "head_dim"),
        ({"head_dim": 1}, "cannot rotate 1 of 1 channels", "head_dim"),
    ],
)
def test_what_cannot_be_is_refused_by_name(profile_of, edits: dict, message: str, field: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        profile_of("llama-3.1-8b", **edits)
    assert caught.value.where == f"config.json: {field}"


def test_a_number_that_a_rule_does_not_have_is_reported(profile_of) -> None:
    profile = profile_of("llama-3.1-8b", rope_scaling={"type": "linear", "factor": 2.0, "beta_fast": 32})
    assert profile.unused_config_keys == ("rope_scaling.beta_fast",)
