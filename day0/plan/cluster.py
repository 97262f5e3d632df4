"""Machines to plan for: GPUs as data under recipes/clusters/, and how many of them on how many nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from day0.errors import InputError
from day0.source.data_files import data_path, list_data, load_yaml

GIB = 2**30
_GB = 1e9
_MOST = 1e18
"""No figure of a machine is larger, in whatever unit it is given."""
_SPEC = re.compile(r"(?P<gpu>[A-Za-z0-9_.-]+):(?P<count>\d+)(?:x(?P<nodes>\d+))?")
_NUMBERS = ("memory_bytes", "bandwidth_gb_s", "link_gb_s", "gpus_per_node", "network_gb_s")
_KEYS = ("name", "title", "vendor", "generation", *_NUMBERS, "tflops", "sources", "gpu", "nodes")
_RATES = ("bf16", "fp8", "fp4")
MOST_GPUS = 65_536
"""More than any one deployment has; the search looks at every way to share them out."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator. `memory_bytes` is what the driver offers to a process, below the figure on the box.

    Bandwidths are bytes/s: `bandwidth` to its own memory, `link_bandwidth` to its neighbours on the node, one way.
    `flops` maps "bf16", "fp8", "fp4" to dense FLOP/s; a format without its own rate is absent. `sources` says where
    each figure is from. `generation` ("hopper") tells engines which kernels, and so which padding, they use.
    """

    name: str
    title: str
    vendor: str
    memory_bytes: int
    bandwidth: float
    flops: dict[str, float]
    link_bandwidth: float
    generation: str = ""
    sources: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cluster:
    """`nodes` alike nodes of `gpus_per_node` GPUs. `network_bandwidth` is bytes/s per GPU between nodes, one way."""

    gpu: Gpu
    gpus_per_node: int
    nodes: int
    network_bandwidth: float
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        return self.gpus_per_node * self.nodes


def parse_cluster(spec: str) -> Cluster:
    """`GPU:COUNT` (h200:8), `GPU:COUNTxNODES` (h200:8x2), or the path of a cluster file."""
    if spec.endswith((".yaml", ".yml")):
        return read_cluster(Path(spec))
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise InputError(
            f"{spec!r} is neither GPU:COUNT, GPU:COUNTxNODES nor a .yaml file",
            where="--cluster",
            hint=f"for example h200:8 or h200:8x2; known GPUs: {', '.join(known_gpus())}",
        )
    values = _packaged(match["gpu"].lower(), "--cluster")
    count, nodes = int(match["count"]), int(match["nodes"] or 1)
    if count < 1 or nodes < 1:
        raise InputError(f"{spec!r} asks for no GPU at all", where="--cluster")
    usual = int(values["gpus_per_node"])
    notes: tuple[str, ...] = ()
    if count > usual:
        notes = (
            f"{count} {values['name']} on one node, where {usual} are usual: communication is priced at the "
            f"node's own links; write {values['name']}:{usual}x{count // usual} for several nodes",
        )
    return _build(values | {"gpus_per_node": count, "nodes": nodes}, "--cluster", notes)


def known_gpus() -> tuple[str, ...]:
    """Names under recipes/clusters/."""
    return tuple(sorted(path.stem for path in list_data("recipes/clusters", ".yaml")))


def read_cluster(path: Path) -> Cluster:
    """A cluster file: the keys of recipes/clusters/, or `gpu: NAME` and what differs from it."""
    if not path.is_file():
        raise InputError("there is no such cluster file", where=str(path))
    return cluster_from(load_yaml(path), str(path))


def cluster_from(values: Any, where: str) -> Cluster:
    """The cluster that a parsed cluster file (or the `cluster` section of a plan file) describes."""
    if not isinstance(values, Mapping):
        raise InputError("a cluster file is a mapping of keys to values", where=where)
    unknown = sorted(str(key) for key in values if key not in _KEYS)
    if unknown:
        raise InputError(
            f"unknown key {', '.join(map(repr, unknown))}", where=where, hint=f"known keys: {', '.join(_KEYS)}"
        )
    base = _packaged(str(values["gpu"]).lower(), where) if "gpu" in values else {}
    return _build({**base, **{key: value for key, value in values.items() if key != "gpu"}}, where)


def describe(cluster: Cluster) -> dict[str, Any]:
    """The cluster in the keys of a cluster file, so that a plan file can carry it."""
    return {
        "name": cluster.gpu.name,
        "title": cluster.gpu.title,
        "vendor": cluster.gpu.vendor,
        "generation": cluster.gpu.generation,
        "memory_bytes": cluster.gpu.memory_bytes,
        "bandwidth_gb_s": cluster.gpu.bandwidth / _GB,
        "tflops": {name: rate / 1e12 for name, rate in cluster.gpu.flops.items()},
        "link_gb_s": cluster.gpu.link_bandwidth / _GB,
        "gpus_per_node": cluster.gpus_per_node,
        "network_gb_s": cluster.network_bandwidth / _GB,
        "nodes": cluster.nodes,
    }


def _packaged(name: str, where: str) -> dict[str, Any]:
    known = known_gpus()
    if name not in known:
        raise InputError(
            f"GPU {name!r} is not known",
            where=where,
            hint=f"known: {', '.join(known)}; or describe yours in a .yaml file with the same keys",
        )
    return dict(load_yaml(data_path("recipes", "clusters", f"{name}.yaml")))


def _build(values: Mapping[str, Any], where: str, notes: tuple[str, ...] = ()) -> Cluster:
    missing = [key for key in ("name", *_NUMBERS, "tflops") if key not in values]
    if missing:
        raise InputError(f"missing key {', '.join(map(repr, missing))}", where=where, hint="or name a known `gpu`")
    name = _word(values, "name", where)
    gpu = Gpu(
        name=name,
        title=_word({"title": name, **values}, "title", where),
        vendor=_word({"vendor": "", **values}, "vendor", where),
        generation=_word({"generation": "", **values}, "generation", where),
        memory_bytes=int(_positive(values, "memory_bytes", where)),
        bandwidth=_positive(values, "bandwidth_gb_s", where) * _GB,
        flops=_rates(values["tflops"], where),
        link_bandwidth=_positive(values, "link_gb_s", where) * _GB,
        sources=_sources(values.get("sources") or {}, where),
    )
    cluster = Cluster(
        gpu=gpu,
        gpus_per_node=_whole(values, "gpus_per_node", where),
        nodes=_whole({"nodes": 1, **values}, "nodes", where),
        network_bandwidth=_positive(values, "network_gb_s", where) * _GB,
        notes=notes,
    )
    if cluster.gpus > MOST_GPUS:
        raise InputError(
            f"{cluster.gpus:,} GPUs are more than one deployment has", where=where, hint=f"at most {MOST_GPUS:,}"
        )
    return cluster


def _rates(value: Any, where: str) -> dict[str, float]:
    if not isinstance(value, Mapping) or "bf16" not in value:
        raise InputError("tflops must map bf16 (and fp8, fp4 where the GPU has them) to a rate", where=where)
    unknown = sorted(str(key) for key in value if key not in _RATES)
    if unknown:
        raise InputError(
            f"unknown rate {', '.join(unknown)}", where=f"{where}: tflops", hint=f"known: {', '.join(_RATES)}"
        )
    return {str(name): _positive(value, name, f"{where}: tflops") * 1e12 for name in value}


def _sources(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InputError("sources must map a key to where its figure is from", where=f"{where}: sources")
    return {str(key): str(source) for key, source in value.items()}


def _word(values: Mapping[str, Any], key: str, where: str) -> str:
    if not isinstance(values[key], str):
        raise InputError(f"{key} must be a text, got {values[key]!r}", where=where)
    return str(values[key])


def _positive(values: Mapping[str, Any], key: str, where: str) -> float:
    value = values[key]
    # The bound keeps out infinity and what no float holds; a comparison with NaN is false.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _MOST:
        raise InputError(f"{key} must be a number above 0 and at most {_MOST:g}, got {value!r}", where=where)
    return float(value)


def _whole(values: Mapping[str, Any], key: str, where: str) -> int:
    value = _positive(values, key, where)
    if value != int(value):
        raise InputError(f"{key} must be a whole number, got {values[key]!r}", where=where)
    return int(value)
