"""day0's own runtime: all ranks of a server are processes of one host, so one command line or none."""

from __future__ import annotations

from day0.engines.launch import Flag, Launch, LaunchRequest, command_lines
from day0.engines.servers import one_of, separate_servers, several
from day0.plan.cluster import Cluster
from day0.plan.layout import Layout

DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
"""The checkpoint's main dtype, which plans count in, as `--dtype` takes it; left to itself a CPU takes float32."""


def _setting(request: LaunchRequest, name: str) -> int | float | None:
    return getattr(request.plan.settings, name) if request.plan.settings else None


def _cache_bytes(request: LaunchRequest) -> int | None:
    """The smallest pool of a rank; None where the model caches nothing per token."""
    return min((rank.kv_pool for rank in request.plan.ranks), default=0) or None


def _above_one(degree: int) -> int | None:
    return degree if degree > 1 else None


FLAGS: tuple[Flag, ...] = (
    Flag("--dtype", lambda r, _: DTYPES.get(r.profile.dtype) if r.profile else None),
    Flag("--kv-dtype", lambda r, _: None if r.workload.kv_dtype == "auto" else r.workload.kv_dtype),
    Flag("--max-model-len", lambda r, _: r.workload.context),
    Flag("--max-num-seqs", lambda r, _: _setting(r, "max_num_seqs")),
    Flag("--max-num-batched-tokens", lambda r, _: _setting(r, "max_batched_tokens")),
    Flag("--mem-fraction", lambda r, _: _setting(r, "mem_fraction")),
    Flag("--kv-cache-bytes", lambda r, _: _cache_bytes(r)),
    Flag("--offload", lambda r, _: r.workload.offload if r.workload.streams else None),
    Flag("--weight-budget", lambda r, _: r.workload.weight_budget or None),
    Flag("--expert-cache-bytes", lambda r, _: r.workload.expert_cache_bytes or None),
    Flag("--expert-dtype", lambda r, _: None if r.workload.expert_dtype == "auto" else r.workload.expert_dtype),
    Flag("--tp", lambda r, _: _above_one(r.plan.layout.attention_tp)),
    Flag("--ep", lambda r, _: _above_one(r.plan.layout.ep)),
    Flag("--pp", lambda r, _: _above_one(r.plan.layout.pp)),
    Flag("--dp", lambda r, _: _above_one(r.plan.layout.dp)),
    Flag("--host", lambda r, _: r.host),
    Flag("--port", lambda r, _: r.port),
)


def obstacle(layout: Layout, cluster: Cluster) -> str | None:
    """Why our runtime cannot start a layout; None where it can. Whole replicas on several hosts are so many servers."""
    if layout.attention_tp * layout.pp > cluster.gpus_per_node or separate_servers(layout, cluster) is None:
        return f"{layout.ranks} ranks are not those of one host with {cluster.gpus_per_node} GPUs, nor of alike servers"
    if layout.dp > 1 and layout.ep == 1 and layout.expert_tp > 1:
        return f"an expert is not cut over {layout.dp} replicas"
    return None


def launch(request: LaunchRequest) -> Launch:
    """One `day0 serve` for all ranks of a host."""
    if reason := obstacle(request.plan.layout, request.cluster):
        return Launch((), notes=(reason,))
    servers = separate_servers(request.plan.layout, request.cluster) or 1
    if servers > 1:
        return several(launch(one_of(request, servers)), servers)
    model = request.model if request.revision is None else f"{request.model}@{request.revision}"
    argv, _ = command_lines(FLAGS, request, ("day0", "serve", model))
    return Launch(argv, port=request.port)
