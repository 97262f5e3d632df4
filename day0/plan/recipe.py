"""What a model needs on an engine besides a layout: the `launch` sections of recipes/models and recipes/launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from day0.errors import InputError
from day0.plan.cluster import Gpu
from day0.profile.profile import ArchitectureProfile
from day0.source.data_files import list_data, load_yaml

ENGINES = ("vllm", "sglang", "transformers", "day0")
_SECTION_KEYS = ("model", "also", "model_types", "sources")
_PART_KEYS = ("image", "arguments", "env", "notes")
_ENGINE_KEYS = ("since", *_PART_KEYS, "machines", "releases")


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """What a model needs on an engine besides the layout: `model` is the hub id to serve where a recipe was asked for.

    `arguments` are appended to the engine's argv, `env` is set for every node, `image` is a container image. `since`
    is the first version of the engine that knows the model.
    """

    model: str | None = None
    image: str | None = None
    arguments: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    since: str | None = None


def launch_facts(
    profile: ArchitectureProfile, engine: str, recipe: str | None = None, *, name: str = "", gpu: Gpu | None = None
) -> LaunchFacts:
    """The facts of the first file whose `launch.model_types` names the model; nothing special where there is none.

    `recipe` is the packaged recipe that was planned, which may say what model it is of. What holds for some releases
    is chosen by `name`, the model's id; what holds on some machines by the `gpu`.
    """
    model = None
    chosen: tuple[Mapping[str, Any], str] | None = None
    for path in (*list_data("recipes/models", ".yaml"), *list_data("recipes/launch", ".yaml")):
        document = load_yaml(path)
        section = document.get("launch") if isinstance(document, Mapping) else None
        if section is None:
            continue
        where = f"{path.name}: launch"
        _known(section, (*_SECTION_KEYS, *ENGINES), where)
        if recipe is not None and path.stem == recipe:
            model = model or section.get("model")
        if chosen is None and profile.model_type in section.get("model_types", ()):
            chosen = section, where
    if chosen is None:
        return LaunchFacts(model=model)
    return replace(_read(*chosen, engine, name or model or "", gpu), model=model)


def _read(section: Mapping[str, Any], where: str, engine: str, name: str, gpu: Gpu | None) -> LaunchFacts:
    """An engine's facts, then those of the release, then those of the machine; a later one adds to an earlier."""
    facts = section.get(engine) or {}
    where = f"{where}.{engine}"
    _known(facts, _ENGINE_KEYS, where)
    parts = [facts, *_of_release(facts, name, where), *_of_machine(facts, gpu, where)]
    return LaunchFacts(
        image=next((str(part["image"]) for part in reversed(parts) if part.get("image")), None),
        arguments=tuple(str(argument) for part in parts for argument in part.get("arguments") or ()),
        env={str(key): str(value) for part in parts for key, value in (part.get("env") or {}).items()},
        notes=tuple(str(note) for part in parts for note in part.get("notes") or ()),
        since=str(facts["since"]) if facts.get("since") else None,
    )


def _of_release(facts: Mapping[str, Any], name: str, where: str) -> Iterator[Mapping[str, Any]]:
    """The first of `releases` whose pattern the model's name matches, whatever its case."""
    last = name.rstrip("/").rpartition("/")[2].lower()
    for pattern, part in (facts.get("releases") or {}).items():
        _known(part, _PART_KEYS, f"{where}.releases.{pattern}")
        if fnmatchcase(last, str(pattern).lower()):
            yield part
            return


def _of_machine(facts: Mapping[str, Any], gpu: Gpu | None, where: str) -> Iterator[Mapping[str, Any]]:
    """Those of `machines` that name the GPU, its generation or its vendor."""
    for kind, part in (facts.get("machines") or {}).items():
        _known(part, _PART_KEYS, f"{where}.machines.{kind}")
        if gpu is not None and kind in (gpu.name, gpu.generation, gpu.vendor):
            yield part


def _known(values: Any, keys: tuple[str, ...], where: str) -> None:
    if not isinstance(values, Mapping):
        raise InputError("must be a mapping", where=where)
    unknown = [str(key) for key in values if key not in keys]
    if unknown:
        raise InputError(f"unknown key {', '.join(unknown)}", where=where, hint=f"known keys: {', '.join(keys)}")
