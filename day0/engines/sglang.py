"""SGLang: the command lines and environment of a plan. Flag names as of SGLang 0.5.23, older ones where they differ."""

from __future__ import annotations

from day0.engines.flag_table import flag_table
from day0.engines.launch import (
    HEAD,
    Flag,
    Launch,
    LaunchRequest,
    command_lines,
    default_image,
    stage_partition,
    too_old,
)
from day0.engines.servers import one_of, separate_servers, several
from day0.plan.cluster import Cluster
from day0.plan.engine_version import Release, is_since
from day0.plan.layout import Layout
from day0.plan.memory_sglang import SGLANG_DRAFTED

INIT_PORT = 20000
_OWN_SIZE = Release((0, 5, 23), "2026-10-30")
IMAGES = {"nvidia": "lmsysorg/sglang:v{}"}
"""The publisher's images by maker of the GPU; those for other makers carry a driver's version in their tag."""

KV_DTYPES = {"fp8": "fp8_e4m3", "fp8_e4m3": "fp8_e4m3", "bf16": "bf16", "bfloat16": "bf16"}


def _dp_attention(request: LaunchRequest) -> bool:
    return request.plan.layout.dp > 1 and request.plan.layout.tp > request.plan.layout.attention_tp


def obstacle(layout: Layout, cluster: Cluster) -> str | None:
    """Why SGLang cannot start a layout; None where it can. Whole replicas on several nodes are servers of their own."""
    if layout.dp == 1 or layout.tp > layout.attention_tp or separate_servers(layout, cluster) is not None:
        return None
    replica = layout.attention_tp * layout.pp
    return f"{layout.dp} whole replicas of {replica} ranks do not fill nodes of {cluster.gpus_per_node} evenly"


def _replicas(request: LaunchRequest) -> bool:
    return request.plan.layout.dp > 1 and not _dp_attention(request)


def _is_older(request: LaunchRequest) -> bool:
    """Before 0.5.23 DP attention is `--dp-size N --enable-dp-attention`; from there on it has a size of its own."""
    return not is_since(request.engine_version, _OWN_SIZE)


def _drafted(request: LaunchRequest) -> int:
    """Tokens drafted one after another; SGLang's count of draft tokens has the verified one as well."""
    return request.workload.drafted(SGLANG_DRAFTED)


def _settings(request: LaunchRequest, name: str) -> int | float | None:
    return getattr(request.plan.settings, name) if request.plan.settings else None


FLAGS: tuple[Flag, ...] = (
    Flag("--revision", lambda r, _: r.revision),
    Flag("--tp-size", lambda r, _: r.plan.layout.tp),
    Flag("--pp-size", lambda r, _: r.plan.layout.pp if r.plan.layout.pp > 1 else None),
    Flag("--attn-dp-size", lambda r, _: r.plan.layout.dp if _dp_attention(r) and not _is_older(r) else None),
    Flag("--dp-size", lambda r, _: r.plan.layout.dp if _replicas(r) or (_dp_attention(r) and _is_older(r)) else None),
    Flag("--enable-dp-attention", lambda r, _: _dp_attention(r) and _is_older(r)),
    Flag("--ep-size", lambda r, _: r.plan.layout.ep if r.plan.layout.ep > 1 else None),
    Flag("--enable-eplb", lambda r, _: r.workload.redundant_experts > 0),
    Flag("--ep-num-redundant-experts", lambda r, _: r.workload.redundant_experts or None),
    Flag("--dcp-size", lambda r, _: r.plan.layout.cp if r.plan.layout.cp > 1 else None),
    Flag("--context-length", lambda r, _: r.workload.context),
    Flag("--max-running-requests", lambda r, _: _running(r)),
    Flag("--chunked-prefill-size", lambda r, _: _settings(r, "max_batched_tokens")),
    Flag("--mem-fraction-static", lambda r, _: _settings(r, "mem_fraction")),
    Flag("--max-mamba-cache-size", lambda r, _: _settings(r, "state_slots")),
    Flag("--kv-cache-dtype", lambda r, _: KV_DTYPES.get(r.workload.kv_dtype)),
    Flag("--speculative-algorithm", lambda r, _: "NEXTN" if r.workload.speculate else None),
    Flag("--speculative-num-steps", lambda r, _: _drafted(r) or None),
    Flag("--speculative-eagle-topk", lambda r, _: 1 if _drafted(r) else None),
    Flag("--speculative-num-draft-tokens", lambda r, _: _drafted(r) + 1 if _drafted(r) else None),
    Flag("--nnodes", lambda r, _: r.nodes if r.nodes > 1 else None),
    Flag("--node-rank", lambda r, node: node.times(1) if r.nodes > 1 else None),
    Flag("--dist-init-addr", lambda r, _: f"{HEAD}:{INIT_PORT}" if r.nodes > 1 else None),
    Flag("--host", lambda r, node: r.host if node.is_head else None),
    Flag("--port", lambda r, node: r.port if node.is_head else None),
)


def _running(request: LaunchRequest) -> int | None:
    """SGLang counts running requests over all replicas of one server where attention is data-parallel."""
    each = _settings(request, "max_num_seqs")
    if each is None:
        return None
    return int(each) * (request.plan.layout.dp if _dp_attention(request) else 1)


def launch(request: LaunchRequest) -> Launch:
    """One `sglang.launch_server` per node; the environment tells SGLang which layers each stage gets."""
    servers = separate_servers(request.plan.layout, request.cluster) or 1
    if _replicas(request) and servers > 1:
        return several(launch(one_of(request, servers)), servers)
    table = flag_table("sglang")
    env = dict(request.facts.env)
    if partition := stage_partition(request.plan):
        env["SGLANG_PP_LAYER_PARTITION"] = partition
    image = request.facts.image or default_image(
        IMAGES, request.cluster.gpu.vendor, request.engine_version, table.versions[-1]
    )
    if reason := obstacle(request.plan.layout, request.cluster):
        return Launch((), env, image=image, port=request.port, notes=(reason,))
    command = ("python3", "-m", "sglang.launch_server", "--model-path", request.model)
    argv, worker = command_lines(FLAGS, request, command)
    stale = too_old(request) or table.complaints([word for line in argv for word in line], request.engine_version)
    if stale:
        return Launch((), env, image=image, port=request.port, notes=stale)
    checked = table.record(request.engine_version)
    return Launch(argv, env, worker, image, request.port, request.facts.notes, checked)
