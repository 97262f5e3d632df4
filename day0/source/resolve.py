"""From what the user typed to `ModelFiles`: a path, `recipe:NAME`, or a hub id."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from day0.errors import InputError
from day0.source.checksums import CheckedFile
from day0.source.data_files import data_path, list_data, load_yaml
from day0.source.folder import read_config_file, read_folder
from day0.source.model_files import ModelFiles
from day0.source.shards import shard_names

_RECIPE_PREFIX = "recipe:"
_RECIPE_FOLDER = "recipes/models"
_RECIPE_KEYS = ("name", "title", "config", "extras", "shards", "sources", "notes", "launch")
_MAX_SHARDS = 99_999
_HUB_ID = re.compile(r"(?P<id>[\w-][\w.-]*/[\w-][\w.-]*)(?:@(?P<revision>[\w./-]+))?")
_FORMS = "a model folder, a config.json, a hub id (org/name or org/name@revision), or recipe:NAME"


def resolve(model: str) -> ModelFiles:
    """Read what `model` names. A path that exists wins over the other forms."""
    path = _path(model)
    if path is not None:
        return read_folder(path, model_id=model) if path.is_dir() else read_config_file(path, model_id=model)
    if model.startswith(_RECIPE_PREFIX):
        return read_recipe(model.removeprefix(_RECIPE_PREFIX))
    if model.startswith(("/", "./", "../", "~")) or model.endswith(".json"):
        raise InputError("no such file or folder", where=model)
    if match := _HUB_ID.fullmatch(model):
        from day0.source.hub import Hub  # the hub library is slow to import, and local models need none of it

        return Hub().read(match["id"], match["revision"])
    raise InputError("names no model that day0 can find", where=repr(model), hint=f"give {_FORMS}")


def pull(model: str, *, weights: bool) -> tuple[ModelFiles, tuple[CheckedFile, ...]]:
    """Bring a model of a hub into the local cache: small files and headers, or all of it; with the files checked."""
    match = _HUB_ID.fullmatch(model)
    if match is None:
        raise InputError("is not a hub id", where=repr(model), hint="give org/name or org/name@revision")
    from day0.source.hub import Hub

    hub = Hub(keep_headers=True)
    files = hub.read(match["id"], match["revision"])
    folder, checked = hub.pull(files, weights=weights)
    return replace(files, folder=folder), checked


def _path(model: str) -> Path | None:
    """The file or folder that `model` names, None where there is none."""
    try:
        path = Path(model).expanduser()
        return path if model and path.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long for a path, not one at all, or of a user without a home
        return None


def fetch_weights(files: ModelFiles, *, code: bool = False) -> Path:
    """The folder that holds the weights of `files`, with `code` its Python too; downloaded from a hub."""
    if files.source == "hub":
        from day0.source.hub import Hub

        return Hub().fetch_weights(files, code=code)
    if files.tensors is None or files.folder is None:
        raise InputError("has no weights", where=files.id, hint="give a model folder or a hub id")
    return files.folder


def with_weights(files: ModelFiles, *, code: bool = False) -> ModelFiles:
    """The same model with `folder` where its weights lie; from a hub they are downloaded first."""
    return replace(files, folder=fetch_weights(files, code=code))


def recipe_names() -> tuple[str, ...]:
    """The names that `recipe:` takes."""
    return tuple(path.stem for path in list_data(_RECIPE_FOLDER, ".yaml"))


def read_recipe(name: str) -> ModelFiles:
    """The architecture facts of a packaged recipe, without weights."""
    known = recipe_names()
    if name not in known:
        hint = f"known recipes: {', '.join(known) or 'none'}"
        raise InputError("there is no such recipe", where=f"{_RECIPE_PREFIX}{name}", hint=hint)
    path = data_path(*_RECIPE_FOLDER.split("/"), f"{name}.yaml")
    recipe = _checked_recipe(load_yaml(path), path)
    return ModelFiles(
        id=f"{_RECIPE_PREFIX}{name}",
        revision=None,
        source="recipe",
        folder=None,
        config=recipe["config"],
        config_name=f"{_RECIPE_FOLDER}/{name}.yaml",
        tensors=None,
        shards=shard_names(recipe.get("shards", 0)),
        file_names=(),
        extras=recipe.get("extras", {}),
    )


def _checked_recipe(recipe: object, path: Path) -> dict[str, Any]:
    if not isinstance(recipe, dict):
        raise InputError("a recipe is a mapping", where=str(path), hint=f"keys: {', '.join(_RECIPE_KEYS)}")
    if unknown := sorted(str(key) for key in recipe if key not in _RECIPE_KEYS):
        hint = f"known keys: {', '.join(_RECIPE_KEYS)}"
        raise InputError(f"unknown keys: {', '.join(unknown)}", where=str(path), hint=hint)
    config = recipe.get("config")
    if not isinstance(config, dict) or not config:
        raise InputError("`config` must be a mapping with the keys of a config.json", where=str(path))
    extras = recipe.get("extras", {})
    if not isinstance(extras, dict) or any(not isinstance(content, dict) for content in extras.values()):
        raise InputError("`extras` must map file names to the mappings they hold", where=str(path))
    shards = recipe.get("shards", 1)
    if isinstance(shards, bool) or not isinstance(shards, int) or not 1 <= shards <= _MAX_SHARDS:
        raise InputError(f"`shards` must be a number from 1 to {_MAX_SHARDS:,}", where=str(path))
    return recipe
