"""Models whose model_type is new: read with the family they fit, told apart from it where they do not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from day0.profile.parameters import count_parameters
from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.profile.sketch import sketch
from day0.profile.tensors import compare_tensors
from day0.source.model_files import ModelFiles, TensorHeader

RECIPES = ("llama-3.1-8b", "qwen3-0.6b", "mixtral-8x7b", "qwen3-30b-a3b")


@pytest.fixture
def renamed(config_of, files_of, headers_of) -> Callable[..., tuple[ModelFiles, ArchitectureProfile]]:
    """(files, true profile) of a recipe under a name that nobody knows, with `keys` and `tensors` added."""

    def make(
        recipe: str, *, keys: dict[str, Any] | None = None, tensors: dict[str, TensorHeader] | None = None, **edits: Any
    ) -> tuple[ModelFiles, ArchitectureProfile]:
        config = config_of(recipe, **edits)
        truth = read_profile(files_of(config))
        new = config | {"model_type": "novel", "architectures": ["NovelForCausalLM"]} | (keys or {})
        return files_of(new, tensors=headers_of(truth) | (tensors or {})), truth

    return make


def codes(profile: ArchitectureProfile) -> set[tuple[str, str]]:
    return {(finding.code, finding.severity) for finding in profile.findings}


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_new_name_for_a_known_architecture(renamed, recipe: str) -> None:
    files, truth = renamed(recipe)
    profile = read_profile(files)
    assert (profile.family, profile.layers, profile.native) == (truth.family, truth.layers, True)
    assert profile.likeness is not None and profile.likeness.whole and profile.likeness.family == truth.family
    assert codes(profile) == {("read-as-family", "warning")}
    assert f"read as {truth.family}" in profile.findings[-1].message


def test_new_keys_and_tensors_are_named_and_the_rest_is_read(renamed) -> None:
    extra = {"model.layers.3.mystery.weight": TensorHeader("BF16", (6, 5), "s", 0, 60)}
    files, truth = renamed("qwen3-0.6b", keys={"clever_trick": 3}, tensors=extra)
    profile = read_profile(files)
    likeness = profile.likeness
    assert likeness is not None and likeness.read and not likeness.whole
    assert (profile.layers, profile.native) == (truth.layers, False)
    assert codes(profile) == {("unknown-family", "error")}
    assert set(profile.unused_config_keys) - set(truth.unused_config_keys) == {"clever_trick"}
    assert compare_tensors(profile, files).unexpected == tuple(extra)
    message = profile.findings[-1].message
    assert "clever_trick" in message and "mystery" in message


def test_what_lacks_tensors_of_its_nearest_family_is_not_read_as_it(renamed) -> None:
    files, truth = renamed("qwen3-0.6b")
    assert files.tensors is not None
    kept = {name: header for name, header in files.tensors.items() if "up_proj" not in name}
    profile = read_profile(replace(files, tensors=kept))
    assert (profile.family, profile.layers) == (None, ())
    assert profile.likeness is not None and not profile.likeness.read
    assert profile.likeness.family == truth.family
    assert any(f"{truth.num_layers} tensors are missing" in text for text in profile.likeness.differs)


def test_without_headers_a_likeness_is_no_fact(renamed) -> None:
    files, truth = renamed("qwen3-30b-a3b")
    profile = read_profile(replace(files, tensors=None))
    assert profile.layers == truth.layers
    assert profile.likeness is not None and not profile.likeness.whole
    assert codes(profile) == {("unknown-family", "error")}
    assert "no headers to confirm it" in profile.findings[-1].message


def test_a_config_of_other_words_resembles_nothing(files_of) -> None:
    profile = read_profile(files_of({"model_type": "zz", "n_layer": 12, "n_embd": 64, "n_ctx": 128}))
    assert (profile.family, profile.likeness) == (None, None)
    assert profile.unused_config_keys == ("n_ctx", "n_embd", "n_layer")


def test_sketch_of_layers_and_parameters_by_headers_alone(renamed) -> None:
    """Renamed outer modules put every tensor beyond the tables: names inside layers still tell what they are."""
    files, truth = renamed("qwen3-30b-a3b")
    assert files.tensors is not None
    moved = {name.replace("model.layers", "trunk.blocks"): header for name, header in files.tensors.items()}
    drawn = sketch(replace(files, tensors=moved))
    assert [(layer.mixer, layer.feed_forward) for layer in drawn.layers] == [("gqa", "moe")] * truth.num_layers
    assert drawn.params == count_parameters(truth)


def test_every_published_family_is_found_again_under_a_new_name(shared, files_of, headers_of) -> None:
    tried = set()
    for folder in sorted((shared / "model_configs").iterdir()):
        if not (folder / "config.json").is_file():
            continue
        config = json.loads((folder / "config.json").read_text())
        truth = read_profile(files_of(config))
        headers = headers_of(truth) if truth.family is not None and not truth.likeness else {}
        if not 0 < len(headers) < 600 or truth.family in tried:
            continue  # a few seconds are enough; larger models have more experts and no other parts
        tried.add(truth.family)
        named = config | {"model_type": "novel", "architectures": ["NovelForCausalLM"]}
        profile = read_profile(files_of(named, tensors=headers))
        assert profile.likeness is not None, folder.name
        assert profile.likeness.read and profile.layers == truth.layers, folder.name
    assert len(tried) > 10
