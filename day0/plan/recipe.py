"""What a packaged recipe says about launching a model: the `launch` section of recipes/models/*.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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


def launch_facts(profile: ArchitectureProfile, engine: str) -> LaunchFacts:
    """The facts of the first recipe whose `launch.model_types` names the model; nothing special where there is none."""
    for path in list_data("recipes/models", ".yaml"):
        document = load_yaml(path)
        section = document.get("launch") if isinstance(document, Mapping) else None
        if section is None:
            continue
        where = f"{path.name}: launch"
        _known(section, (*_SECTION_KEYS, "vllm", "sglang", "day0"), where)
        if profile.model_type in section.get("model_types", ()):
            return _read(section, engine, where)
    return LaunchFacts()


def _read(section: Mapping[str, Any], engine: str, where: str) -> LaunchFacts:
    facts = section.get(engine) or {}
    _known(facts, _ENGINE_KEYS, f"{where}.{engine}")
    return LaunchFacts(
        model=section.get("model"),
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
