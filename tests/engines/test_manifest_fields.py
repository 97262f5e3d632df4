"""Emitted manifests have the fields that LeaderWorkerSet, Kubernetes and compose know, and all that they demand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from day0.engines.emit import EMIT_FORMS
from day0.engines.table import LAUNCHERS
from day0.plan.recipe import LaunchFacts
from day0.source.data_files import load_yaml

FACTS = load_yaml(Path(__file__).parent / "manifest_fields.yaml")
TYPES = {"str": str, "int": int, "bool": bool}


def strange(value: Any, known: Any, place: str) -> Iterator[str]:
    """Each field that is not known, lacks, or holds something else."""
    if known == "any":
        return
    if isinstance(known, dict):
        if not isinstance(value, dict):
            yield f"{place} is no mapping"
            return
        fields = {name.rstrip("!"): inner for name, inner in known.items()}
        yield from (f"{place}.{name} is not known" for name in value if name not in fields)
        yield from (f"{place}.{name[:-1]} is missing" for name in known if name[-1] == "!" and name[:-1] not in value)
        for name in value.keys() & fields.keys():
            yield from strange(value[name], fields[name], f"{place}.{name}")
            if name in FACTS["words"] and isinstance(value[name], str) and value[name] not in FACTS["words"][name]:
                yield f"{place}.{name} may not be {value[name]}"
    elif isinstance(known, list):
        if not isinstance(value, list):
            yield f"{place} is no list"
            return
        for number, each in enumerate(value):
            yield from strange(each, known[0], f"{place}[{number}]")
    elif known == "map":
        if not isinstance(value, dict) or any(isinstance(each, dict | list) for each in value.values()):
            yield f"{place} is no mapping of plain values"
    elif not isinstance(value, TYPES[known]):
        yield f"{place} is no {known}"


def parts(text: str, folder: Path) -> list[Any]:
    made = []
    for number, part in enumerate(text.split("---\n")):
        path = folder / f"{number}.yaml"
        path.write_text(part)
        made.append(load_yaml(path))
    return made


@pytest.mark.parametrize(
    ("recipe", "spec", "engine", "sizes", "kinds"),
    [
        ("kimi-k3", "b200:8x2", "vllm", {"tp": 8, "pp": 2}, ["LeaderWorkerSet", "Service"]),
        ("deepseek-r1", "h100:8x4", "sglang", {"tp": 8, "pp": 2, "dp": 2}, ["LeaderWorkerSet", "Service"]),
        ("llama-3.1-8b", "mi300x:8", "vllm", {"tp": 8}, ["Deployment", "Service"]),
    ],
)
def test_manifests_are_what_the_specifications_know(
    request_for: Any, tmp_path: Path, recipe: str, spec: str, engine: str, sizes: dict[str, int], kinds: list[str]
) -> None:
    request = request_for(recipe, spec, engine, facts=LaunchFacts(env={"SWITCH": "1"}), **sizes)
    launch = LAUNCHERS[engine](request)
    documents = parts(EMIT_FORMS["k8s"](request, launch), tmp_path)
    assert [each["kind"] for each in documents] == kinds
    for each in documents:
        assert list(strange(each, FACTS["documents"][each["kind"]], each["kind"])) == []
        assert each["apiVersion"] == FACTS["versions"][each["kind"]]
    (compose,) = parts(EMIT_FORMS["compose"](request, launch), tmp_path)
    assert list(compose) == ["services"]
    for name, service in compose["services"].items():
        assert list(strange(service, FACTS["documents"]["compose"], name)) == []
        assert not (service.get("network_mode") == "host" and "ports" in service), "compose refuses both"


def test_a_strange_field_is_seen() -> None:
    broken = {"apiVersion": "v1", "kind": "Service", "metadata": {}, "spec": {"ports": [{"port": "8000"}], "size": 2}}
    assert sorted(strange(broken, FACTS["documents"]["Service"], "s")) == [
        "s.metadata.name is missing", "s.spec.ports[0].port is no int", "s.spec.size is not known",
    ]  # fmt: skip
