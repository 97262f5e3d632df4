"""A plan as a file: what was decided and what it was decided for, so that it can be checked again and served from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from day0.errors import InputError
from day0.plan.cluster import Cluster, cluster_from, describe
from day0.plan.layout import Layout
from day0.plan.memory import Settings
from day0.plan.plan import Plan
from day0.plan.workload import Workload
from day0.source.data_files import dump_yaml, load_yaml

SCHEMA = "day0.plan-file/1"
_KEYS = ("schema", "model", "engine", "cluster", "layout", "workload", "settings", "predicted")

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class _Model:
    id: str
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class _Engine:
    name: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan read back. `predicted` holds the memory lines of each stage as they were when the file was written."""

    model: str
    revision: str | None
    engine: str
    engine_version: str | None
    cluster: Cluster
    layout: Layout
    workload: Workload
    settings: Settings | None
    predicted: tuple[dict[str, int], ...]


def write_plan(
    plan: Plan, *, model: str, revision: str | None, version: str | None, cluster: Cluster, workload: Workload
) -> str:
    """The text of plan.yaml."""
    return dump_yaml(
        {
            "schema": SCHEMA,
            "model": {"id": model, "revision": revision},
            "engine": {"name": plan.engine, "version": version},
            "cluster": describe(cluster),
            "layout": asdict(plan.layout),
            "workload": asdict(workload),
            "settings": asdict(plan.settings) if plan.settings else None,
            "predicted": [asdict(rank) for rank in plan.ranks],
        }
    )


def read_plan(path: Path) -> PlanFile:
    """Read plan.yaml; unknown keys, missing sections and values of the wrong kind are named."""
    document = load_yaml(path)
    where = str(path)
    if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
        raise InputError(f"not a plan file: its `schema` is not {SCHEMA!r}", where=where)
    _refuse_unknown(document, _KEYS, where)
    model = _section(_Model, document, "model", where)
    engine = _section(_Engine, document, "engine", where)
    return PlanFile(
        model=model.id,
        revision=model.revision,
        engine=engine.name,
        engine_version=engine.version,
        cluster=cluster_from(document.get("cluster"), f"{where}: cluster"),
        layout=_section(Layout, document, "layout", where),
        workload=_section(Workload, document, "workload", where),
        settings=None if document.get("settings") is None else _section(Settings, document, "settings", where),
        predicted=_convert(document.get("predicted") or (), tuple[dict[str, int], ...], f"{where}: predicted"),
    )


def _section(record: type[Record], document: Mapping[str, Any], key: str, where: str) -> Record:
    """A section as the record that was written there; whatever does not fit is named with its place."""
    values, place = document.get(key), f"{where}: {key}"
    if not isinstance(values, Mapping):
        raise InputError("the section is missing or no mapping", where=place)
    _refuse_unknown(values, tuple(each.name for each in fields(record)), place)  # type: ignore[arg-type]
    try:
        return _convert(dict(values), record, place)
    except InputError as error:  # a record's own rule does not know where its values are from
        raise InputError(error.message, where=error.where or place, hint=error.hint) from None


def _convert(value: Any, kind: type[Record], place: str) -> Record:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        raise InputError(message, where=place + path.rstrip("`")) from None


def _refuse_unknown(values: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = [str(key) for key in values if key not in known]
    if unknown:
        raise InputError(f"unknown key {', '.join(unknown)}", where=where, hint=f"known keys: {', '.join(known)}")
