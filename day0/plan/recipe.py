"""What a model needs on an engine besides a layout: the `launch` sections of recipes/models and recipes/launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from day0.errors import InputError
from day0.profile.profile import ArchitectureProfile
from day0.source.data_files import list_data, load_yaml

_SECTION_KEYS = ("model", "also", "model_types")
_ENGINE_KEYS = ("image", "arguments", "env", "notes")


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """What a model needs on an engine besides the layout: `model` is the hub id to serve where a recipe was asked for.

    `arguments` are appended to the engine's argv, `env` is set for every node, `image` is a container image.
    """

    model: str | None = None
    image: str | None = None
    arguments: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def launch_facts(profile: ArchitectureProfile, engine: str, recipe: str | None = None) -> LaunchFacts:
    """The facts of the first file whose `launch.model_types` names the model; nothing special where there is none.

    `recipe` is the packaged recipe that was planned, which may say what model it is of.
    """
    model = None
    facts = LaunchFacts()
    for path in (*list_data("recipes/models", ".yaml"), *list_data("recipes/launch", ".yaml")):
        document = load_yaml(path)
        section = document.get("launch") if isinstance(document, Mapping) else None
        if section is None:
            continue
        where = f"{path.name}: launch"
        _known(section, (*_SECTION_KEYS, "vllm", "sglang", "day0"), where)
        if recipe is not None and path.stem == recipe:
            model = model or section.get("model")
        if facts == LaunchFacts() and profile.model_type in section.get("model_types", ()):
            facts = _read(section, engine, where)
    return replace(facts, model=model)


def _read(section: Mapping[str, Any], engine: str, where: str) -> LaunchFacts:
    facts = section.get(engine) or {}
    _known(facts, _ENGINE_KEYS, f"{where}.{engine}")
    return LaunchFacts(
        image=facts.get("image"),
        arguments=tuple(str(argument) for argument in facts.get("arguments", ())),
        env={str(name): str(value) for name, value in (facts.get("env") or {}).items()},
        notes=tuple(str(note) for note in facts.get("notes", ())),
    )


def _known(values: Any, keys: tuple[str, ...], where: str) -> None:
    if not isinstance(values, Mapping):
        raise InputError("must be a mapping", where=where)
    unknown = [str(key) for key in values if key not in keys]
    if unknown:
        raise InputError(f"unknown key {', '.join(unknown)}", where=where, hint=f"known keys: {', '.join(keys)}")
