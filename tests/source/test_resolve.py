"""From what the user typed to a model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from day0.errors import InputError
from day0.source import resolve as room
from day0.source.resolve import fetch_weights, recipe_names, resolve, with_weights


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder org/some-model with a config, below the working directory."""
    folder = tmp_path / "org" / "some-model"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "some"}')
    monkeypatch.chdir(tmp_path)
    return folder


def test_a_path_that_exists_wins_over_a_hub_id(model: Path) -> None:
    files = resolve("org/some-model")
    assert (files.id, files.source) == ("org/some-model", "folder")
    assert resolve(str(model)).config == {"model_type": "some"}


def test_config_file(model: Path) -> None:
    files = resolve("org/some-model/config.json")
    assert (files.source, files.folder, files.tensors) == ("config", Path("org/some-model"), None)


def test_home_is_expanded(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(model.parent))
    assert resolve("~/some-model").source == "folder"


def test_recipe() -> None:
    files = resolve("recipe:kimi-k3")
    assert (files.id, files.source, files.folder, files.tensors) == ("recipe:kimi-k3", "recipe", None, None)
    assert files.config_name == "recipes/models/kimi-k3.yaml"
    assert files.config
    assert all(name.endswith(".json") for name in files.extras)


def test_a_recipe_may_say_how_many_files_the_release_has() -> None:
    shards = resolve("recipe:kimi-k3").shards
    assert len(shards) == 96
    assert (shards[0], shards[-1]) == ("model-00001-of-000096.safetensors", "model-00096-of-000096.safetensors")
    assert resolve("recipe:llama-3.1-8b").shards == ()


def test_every_packaged_recipe_loads() -> None:
    assert recipe_names()
    for name in recipe_names():
        assert resolve(f"recipe:{name}").config


@pytest.mark.parametrize("name", ["absent", "", "../models/kimi-k3", "kimi-k3.yaml"])
def test_unknown_recipe_lists_the_known(name: str) -> None:
    with pytest.raises(InputError, match="no such recipe") as caught:
        resolve(f"recipe:{name}")
    assert "kimi-k3" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a\n", "a recipe is a mapping"),
        ("name: x\nconfigs: {a: 1}\n", "unknown keys: configs"),
        ("name: x\n", "`config` must be a mapping"),
        ("config: []\n", "`config` must be a mapping"),
        ("config: {a: 1}\nextras: {preprocessor_config.json: 3}\n", "`extras` must map file names"),
        ("config: {a: 1}\nshards: 0\n", "`shards` must be a number from 1"),
        ("config: {a: 1}\nshards: true\n", "`shards` must be a number from 1"),
        ("config: {a: 1}\nshards: 100000\n", "`shards` must be a number from 1"),
        ("config: {a: 1}\nshards: [a]\n", "`shards` must be a number from 1"),
    ],
)
def test_broken_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    monkeypatch.setattr(room, "list_data", lambda folder, suffix: [path])
    monkeypatch.setattr(room, "data_path", lambda *parts: path)
    with pytest.raises(InputError, match=words):
        resolve("recipe:x")


@pytest.mark.parametrize(
    "model",
    ["", "word", "a/b/c", "org/", "/name", "org/name@", "org name/x", "x" * 5000, "nul\0byte", "https://host/org/name"],
)
def test_nonsense_is_told_the_forms(model: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve(model)
    assert "org/name" in caught.value.hint or "no such file" in caught.value.message


@pytest.mark.parametrize("model", ["/absent/folder", "./absent", "../absent/x", "absent/config.json", "~nobody-here/x"])
def test_missing_path_is_not_sought_on_the_hub(model: str) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        resolve(model)


@pytest.mark.parametrize("path", ["/dev/null", os.__file__])
def test_file_that_is_no_model(path: str) -> None:
    with pytest.raises(InputError, match="neither a model folder nor a config"):
        resolve(path)


def test_weights_of_a_folder_are_where_they_are(model: Path) -> None:
    from safetensors.numpy import save_file

    with pytest.raises(InputError, match="has no weights"):
        fetch_weights(resolve("org/some-model"))
    with pytest.raises(InputError, match="has no weights"):
        fetch_weights(resolve("recipe:kimi-k3"))
    save_file({}, model / "model.safetensors")
    files = resolve("org/some-model")
    assert fetch_weights(files) == Path("org/some-model")
    assert with_weights(files) == files


def test_local_models_do_not_import_the_hub_library(model: Path) -> None:
    code = "import sys; from day0.source.resolve import resolve; resolve('org/some-model'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "day0.source.folder" in done.stdout.split()
    assert "huggingface_hub" not in done.stdout.split()
