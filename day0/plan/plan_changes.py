"""What a plan file says otherwise than a plan made again from it: another model, other machines, edited figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from day0.plan.cluster import GIB, Cluster, describe, known_gpus, parse_cluster
from day0.plan.plan import Plan, Planner
from day0.plan.plan_file import PlanFile

LINES = ("weights", "workspace", "activations", "state_pool", "kv_pool", "comm", "overhead", "free", "total")
_PLACES = ("rank", "count", "layers")


def changes(saved: PlanFile, planner: Planner, plan: Plan, model: str, revision: str | None) -> tuple[str, ...]:
    """One remark for each thing that differs; none where the file still says what the plan is."""
    found = [*_differing("model", {"id": saved.model, "revision": saved.revision}, {"id": model, "revision": revision})]
    engine = {"name": planner.accounting.name, "version": planner.accounting.version}
    found += _differing("engine", {"name": saved.engine, "version": saved.engine_version}, engine)
    found += _differing("cluster", describe(saved.cluster), describe(planner.cluster))
    found += _edited_gpu(planner.cluster)
    found += _differing("layout", asdict(saved.layout), asdict(plan.layout))
    found += _differing("workload", asdict(saved.workload), asdict(planner.workload))
    found += _differing("settings", _fields(saved.settings), _fields(plan.settings))
    found += _differing_ranks(saved.predicted, tuple(asdict(rank) for rank in plan.ranks))
    return tuple(found)


def _fields(record: Any) -> dict[str, Any]:
    return {} if record is None else asdict(record)


def _differing(section: str, saved: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys((*saved, *now)):
        if saved.get(name) != now.get(name):
            yield f"{section}.{name} is {saved.get(name)} in the file and {now.get(name)} now"


def _edited_gpu(cluster: Cluster) -> Iterator[str]:
    """Where the figures of a GPU that day0 knows by this name are not those it knows."""
    if cluster.gpu.name not in known_gpus():
        return
    known = describe(parse_cluster(f"{cluster.gpu.name}:1"))
    for name, value in describe(cluster).items():
        if name not in ("gpus_per_node", "nodes", "network_gb_s") and value != known[name]:
            yield f"cluster.{name} is {value}, where recipes/clusters/{cluster.gpu.name}.yaml has {known[name]}"


def _differing_ranks(saved: tuple[dict[str, int], ...], now: tuple[dict[str, int], ...]) -> Iterator[str]:
    """Stage by stage; lines of memory in GiB, with the bytes where those round to the same."""
    if len(saved) != len(now):
        yield f"predicted: {len(saved)} stages in the file and {len(now)} now"
        return
    for stage, (then, here) in enumerate(zip(saved, now, strict=True)):
        for name in (*_PLACES, *LINES):
            if then.get(name) != here[name]:
                text = _size if name in LINES else str
                yield f"predicted[{stage}].{name} is {text(then.get(name))} in the file and {text(here[name])} now"


def _size(value: int | None) -> str:
    return "missing" if value is None else f"{value / GIB:.3f} GiB ({value:,} bytes)"
