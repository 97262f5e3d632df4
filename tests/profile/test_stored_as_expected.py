"""The quick answer to "is everything as expected" is yes only where the long comparison finds nothing."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from day0.profile.read import read_profile
from day0.profile.stored_as_expected import stored_as_expected
from day0.profile.tensors import compare_tensors, expected_tensors
from day0.source.model_files import ModelFiles, TensorHeader
from day0.source.resolve import resolve

RECIPES = ("llama-3.1-8b", "mixtral-8x7b", "qwen3-30b-a3b")


def with_headers(recipe: str) -> tuple[ModelFiles, dict[str, TensorHeader]]:
    files = resolve(f"recipe:{recipe}")
    headers = {
        name: TensorHeader(spec.dtype, spec.shape, "model.safetensors", 0, 0)
        for spec in expected_tensors(read_profile(files))
        for name in spec.names()
    }
    return files, headers


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("order", ["execution", "sorted", "mixed"])
def test_yes_in_any_order(recipe: str, order: str) -> None:
    files, headers = with_headers(recipe)
    names = list(headers)
    if order == "sorted":
        names.sort()
    elif order == "mixed":
        random.Random(0).shuffle(names)
    specs = expected_tensors(read_profile(files))
    assert stored_as_expected(specs, {name: headers[name] for name in names})
    comparison = compare_tensors(read_profile(files), replace(files, tensors=headers))
    assert (comparison.exact, comparison.sound, comparison.findings) == (True, True, ())


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("mistake", ["missing", "unexpected", "renamed", "shape", "dtype", "swapped"])
def test_no_after_any_one_mistake(recipe: str, mistake: str) -> None:
    files, headers = with_headers(recipe)
    profile = read_profile(files)
    specs = expected_tensors(profile)
    seed = random.Random(mistake)
    for name in seed.sample(sorted(headers), 12):
        broken = dict(headers)
        if mistake == "missing":
            del broken[name]
        elif mistake == "unexpected":
            broken[f"{name}.more"] = headers[name]
        elif mistake == "renamed":
            broken[f"{name}x"] = broken.pop(name)
        elif mistake == "shape":
            broken[name] = changed(headers[name], shape=(*headers[name].shape, 1))
        elif mistake == "dtype":
            broken[name] = changed(headers[name], dtype="F64")
        else:
            other = next(key for key in headers if headers[key].shape != headers[name].shape)
            broken[name], broken[other] = headers[other], headers[name]
        assert not stored_as_expected(specs, broken)
        comparison = compare_tensors(profile, replace(files, tensors=broken))
        assert not comparison.exact
        assert comparison.missing or comparison.unexpected or comparison.findings


def test_a_tensor_beside_the_experts_is_in_nobodys_way() -> None:
    """One whose name falls between those of the experts only makes the quick answer "look closer"."""
    files, _ = with_headers("mixtral-8x7b")
    specs = expected_tensors(read_profile(files))
    expert = next(spec for spec in specs if spec.experts)
    between = replace(specs[0], name=expert.name.replace("{expert}", "3x"))
    headers = {
        name: TensorHeader(spec.dtype, spec.shape, "", 0, 0) for spec in (*specs, between) for name in spec.names()
    }
    assert not stored_as_expected((*specs, between), headers)
