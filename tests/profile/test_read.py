from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from day0.errors import InputError
from day0.profile.inert_keys import INERT_KEYS
from day0.profile.read import read_profile
from day0.source.resolve import resolve

RECIPES = ("llama-3.1-8b", "qwen3-0.6b", "mixtral-8x7b", "qwen3-30b-a3b", "kimi-k3")
SECTIONS = {"kimi-k3": ("text_config", "vision_config", "text_config.linear_attn_config")}


def section(config: dict[str, Any], path: str) -> dict[str, Any]:
    for name in path.split(".") if path else ():
        config = config[name]
    return config


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_read_to_its_last_key(profile_of, recipe: str) -> None:
    profile = profile_of(recipe)
    assert (profile.unused_config_keys, profile.findings) == ((), ())
    assert set(profile.defaulted_config_keys) <= {"head_dim"}, "hidden size over heads, where none is said"
    assert [layer.index for layer in profile.layers] == list(range(profile.num_layers))


# New names and the names of inert keys' neighbours, but none that a reader knows.
UNKNOWN = st.from_regex(r"zz_[a-z0-9_]{0,10}", fullmatch=True)
VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), added=st.dictionaries(UNKNOWN, VALUES, min_size=1, max_size=4))
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_unknown_key_is_reported_and_changes_nothing(config_of, files_of, recipe: str, data, added) -> None:
    config = config_of(recipe)
    plain = read_profile(files_of(copy.deepcopy(config)))
    place = data.draw(st.sampled_from(("", *SECTIONS.get(recipe, ()))))
    section(config, place).update(added)
    found = read_profile(files_of(config))
    assert set(found.unused_config_keys) == {f"{place}.{key}" if place else key for key in added}
    assert found.layers == plain.layers


@pytest.mark.parametrize("recipe", RECIPES)
def test_inert_keys_are_not_reported(config_of, files_of, recipe: str) -> None:
    config = config_of(recipe)
    places = [config] + ([config["text_config"]] if "text_config" in config else [])
    for place in places:
        place.update({key: 1 for key in INERT_KEYS if key not in place})
    assert read_profile(files_of(config)).unused_config_keys == ()


OPTIONAL = {
    "eos_token_id",
    "bos_token_id",
    "max_position_embeddings",
    "attn_res_block_size",
    "gate_lower_bound",
    "q_lora_rank",
    "routed_expert_hidden_size",
    "activation_situ_linear_beta",
}
"""Keys without which a part of the model is another, or not there."""


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_key_taken_away_is_missed_by_name_or_defaulted(config_of, files_of, recipe: str) -> None:
    config = config_of(recipe)
    wanted = read_profile(files_of(copy.deepcopy(config)))
    missed = 0
    for place in ("", *SECTIONS.get(recipe, ())):
        inside = section(config, place)
        for key in sorted(set(inside) - {"model_type", "architectures"}):
            value, path = inside.pop(key), f"{place}.{key}" if place else key
            try:
                found = read_profile(files_of(config))
            except InputError as error:
                assert error.where == f"config.json: {path}"
                missed += error.message == "is missing"
            else:
                same = found == wanted or key in INERT_KEYS
                said = path.replace("torch_dtype", "dtype") in found.defaulted_config_keys
                assert same or said or key in OPTIONAL or isinstance(value, dict), path
            inside[key] = value
    assert missed >= 5


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    data=st.data(),
    value=st.sampled_from([True, -1, 0, 1.5, "word", [], [-1], {}, {"a": 1}, float("nan"), 10**400, 10**12]),
)
@pytest.mark.parametrize("recipe", RECIPES)
def test_any_value_in_any_place_is_read_or_refused(config_of, files_of, recipe: str, data, value) -> None:
    config = config_of(recipe)
    place = data.draw(st.sampled_from(("", *SECTIONS.get(recipe, ()))))
    key = data.draw(st.sampled_from(sorted(section(config, place))))
    section(config, place)[key] = value
    try:
        read_profile(files_of(config))
    except InputError as error:
        assert error.where.startswith("config.json: ")


def test_too_many_layers_are_refused_at_once(profile_of) -> None:
    with pytest.raises(InputError, match="at most 4096") as caught:
        profile_of("llama-3.1-8b", num_hidden_layers=10**9)
    assert caught.value.where == "config.json: num_hidden_layers"


def test_an_unknown_family_is_a_finding_and_no_error(files_of) -> None:
    profile = read_profile(
        files_of({"model_type": "novel", "architectures": ["NovelForCausalLM"], "hidden_size": 64, "vocab_size": 10})
    )
    assert (profile.family, profile.layers, profile.hidden_size, profile.vocab_size) == (None, (), 64, 10)
    (finding,) = profile.findings
    assert (finding.code, finding.severity) == ("unknown-family", "error")
    assert "'novel'" in finding.message
    assert "llama" in finding.hint


def test_an_empty_config_is_an_unknown_family(files_of) -> None:
    assert read_profile(files_of({})).family is None


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_architecture_is_enough_where_the_type_is_missing(profile_of, absent, recipe: str) -> None:
    assert profile_of(recipe, model_type=absent).family == profile_of(recipe).family


def test_the_type_counts_before_the_architecture(profile_of) -> None:
    assert profile_of("llama-3.1-8b", architectures=["Qwen3ForCausalLM"]).family == "llama"


@pytest.mark.parametrize(
    ("spelled", "dtype"),
    [
        ({"torch_dtype": "float16"}, "F16"),
        ({"torch_dtype": "torch.bfloat16"}, "BF16"),
        ({"dtype": "float32", "torch_dtype": "float16"}, "F32"),
    ],
)
def test_dtype_has_two_spellings(profile_of, spelled: dict[str, str], dtype: str) -> None:
    assert profile_of("llama-3.1-8b", **spelled).dtype == dtype


def test_a_missing_dtype_is_bfloat16_and_said_to_be_defaulted(profile_of, absent) -> None:
    profile = profile_of("llama-3.1-8b", torch_dtype=absent)
    assert (profile.dtype, profile.defaulted_config_keys) == ("BF16", ("dtype",))


def test_an_unknown_dtype_is_refused(profile_of) -> None:
    with pytest.raises(InputError, match="'int3' is not known"):
        profile_of("llama-3.1-8b", torch_dtype="int3")


def test_end_tokens_of_the_generation_config_count_before_the_config(config_of, files_of) -> None:
    config = config_of("llama-3.1-8b")
    assert read_profile(files_of(config)).eos_token_ids == (128001,)
    extras = {"generation_config.json": {"eos_token_id": [128001, 128009]}}
    assert read_profile(files_of(config, extras=extras)).eos_token_ids == (128001, 128009)
    with pytest.raises(InputError) as caught:
        read_profile(files_of(config, extras={"generation_config.json": {"eos_token_id": ["</s>"]}}))
    assert caught.value.where == "generation_config.json: eos_token_id"


def test_end_token_of_kimi_is_the_turn_terminator(profile_of) -> None:
    profile = profile_of("kimi-k3", text_config__eos_token_id=5)
    assert (profile.eos_token_ids, profile.bos_token_id) == ((163586,), 163584)


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_and_their_tiny_forms_are_of_one_family(tiny, recipe: str) -> None:
    full, small = read_profile(resolve(f"recipe:{recipe}")), read_profile(resolve(str(tiny(recipe))))
    assert (full.family, full.native) == (small.family, small.native)
    assert full.native
