"""Configs to edit, and their profiles."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from day0.profile.profile import ArchitectureProfile
from day0.profile.read import read_profile
from day0.source.model_files import ModelFiles, TensorHeader
from day0.source.resolve import resolve

# Configs that several of these tests share are plain modules beside them.
sys.path.insert(0, str(Path(__file__).parent))

ABSENT = object()


def as_files(config: dict[str, Any], **fields: Any) -> ModelFiles:
    """A config without weights, as a bare config.json is."""
    given = {"tensors": None, "extras": {}} | fields
    return ModelFiles(
        id="test/model",
        revision=None,
        source="config",
        folder=None,
        config=config,
        config_name="config.json",
        shards=(),
        file_names=(),
        **given,
    )


def edited(recipe: str, **edits: Any) -> dict[str, Any]:
    """A recipe's config with keys replaced; "__" stands for the dot of a section, ABSENT takes a key out."""
    config = copy.deepcopy(dict(resolve(f"recipe:{recipe}").config))
    for path, value in edits.items():
        *sections, key = path.split("__")
        section = config
        for name in sections:
            section = section[name]
        if value is ABSENT:
            section.pop(key, None)
        else:
            section[key] = value
    return config


@pytest.fixture(scope="session")
def absent() -> object:
    return ABSENT


@pytest.fixture(scope="session")
def config_of() -> Callable[..., dict[str, Any]]:
    return edited


@pytest.fixture(scope="session")
def files_of() -> Callable[..., ModelFiles]:
    return as_files


@pytest.fixture(scope="session")
def profile_of() -> Callable[..., ArchitectureProfile]:
    """`profile_of(recipe, **edits)`: the profile of a recipe's config after `config_of`'s edits."""

    def read(recipe: str, **edits: Any) -> ArchitectureProfile:
        return read_profile(as_files(edited(recipe, **edits)))

    return read


@pytest.fixture(scope="session")
def headers_of() -> Callable[[ArchitectureProfile], dict[str, TensorHeader]]:
    """Headers exactly as a profile expects them."""
    from day0.profile.tensors import expected_tensors

    def make(profile: ArchitectureProfile) -> dict[str, TensorHeader]:
        return {
            name: TensorHeader(spec.dtype, spec.shape, "model.safetensors", 0, 1)
            for spec in expected_tensors(profile)
            for name in spec.names()
        }

    return make
