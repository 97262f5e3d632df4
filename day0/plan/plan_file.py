"""A plan as a file: what was decided and what it was decided for, so that it can be checked again and served from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from day0.errors import InputError
from day0.plan.cluster import Cluster, cluster_from, describe
from day0.plan.layout import Layout
from day0.plan.memory import Settings
from day0.plan.plan import Plan
from day0.plan.workload import Workload
from day0.source.data_files import dump_yaml, load_yaml

SCHEMA = "day0.plan-file/1"
_KEYS = ("schema", "model", "engine", "cluster", "layout", "workload", "settings", "predicted")


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
    model = _section(document, "model", ("id", "revision"), where)
    engine = _section(document, "engine", ("name", "version"), where)
    settings = document.get("settings")
    return PlanFile(
        model=str(model.get("id")),
        revision=model.get("revision"),
        engine=str(engine.get("name")),
        engine_version=engine.get("version"),
        cluster=cluster_from(document.get("cluster"), f"{where}: cluster"),
        layout=_whole_numbers(Layout, document, "layout", where),
        workload=_workload(document, where),
        settings=None if settings is None else Settings(**_section(document, "settings", _names(Settings), where)),
        predicted=tuple(dict(line) for line in document.get("predicted") or ()),
    )


def _names(record: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(record))


def _section(document: Mapping[str, Any], key: str, known: tuple[str, ...], where: str) -> dict[str, Any]:
    values = document.get(key)
    if not isinstance(values, Mapping):
        raise InputError("the section is missing or no mapping", where=f"{where}: {key}")
    _refuse_unknown(values, known, f"{where}: {key}")
    return dict(values)


def _refuse_unknown(values: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = [str(key) for key in values if key not in known]
    if unknown:
        raise InputError(f"unknown key {', '.join(unknown)}", where=where, hint=f"known keys: {', '.join(known)}")


def _whole_numbers(record: type[Layout], document: Mapping[str, Any], key: str, where: str) -> Layout:
    values = _section(document, key, _names(record), where)
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"must be a whole number above 0, got {value!r}", where=f"{where}: {key}.{name}")
    return record(**values)


def _workload(document: Mapping[str, Any], where: str) -> Workload:
    values = _section(document, "workload", _names(Workload), where)
    for name, value in values.items():
        kinds: tuple[type, ...] = {"kv_dtype": (str,), "mem_fraction": (int, float), "speculate": (bool,)}.get(
            name, (int,)
        )
        if value is not None and (isinstance(value, bool) != (kinds == (bool,)) or not isinstance(value, kinds)):
            raise InputError(f"has the wrong kind of value: {value!r}", where=f"{where}: workload.{name}")
    if not isinstance(values.get("context"), int):
        raise InputError("must say the context in tokens", where=f"{where}: workload.context")
    return Workload(**values)
