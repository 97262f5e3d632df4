"""vLLM: the command lines and environment of a plan. Flag names as of vLLM 0.32."""

from __future__ import annotations

import json

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
from day0.plan.layout import Layout
from day0.plan.unprofiled import VLLM_DRAFTED

RPC_PORT = 13345
IMAGES = {
    "nvidia": "vllm/vllm-openai:v{}",
    "amd": "vllm/vllm-openai-rocm:v{}",
    "huawei": "quay.io/ascend/vllm-ascend:v{}",
}
"""The publishers' images by maker of the GPU; their tags are releases."""

KV_DTYPES = {"fp8": "fp8", "fp8_e4m3": "fp8_e4m3", "bf16": "bfloat16", "bfloat16": "bfloat16"}


def _spans_by_replicas(request: LaunchRequest) -> bool:
    """Several nodes, each with whole replicas: nodes join as data-parallel ranks, else as ranks of one engine."""
    return request.nodes > 1 and request.plan.layout.dp > 1


def _joins_evenly(layout: Layout, cluster: Cluster) -> bool:
    """Whether each node has the same number of whole replicas, which join as data-parallel ranks of one server."""
    nodes = -(-layout.ranks // cluster.gpus_per_node)
    return layout.dp % nodes == 0 and layout.attention_tp * layout.pp <= cluster.gpus_per_node


def obstacle(layout: Layout, cluster: Cluster) -> str | None:
    """Why vLLM cannot start a layout by its command lines alone; None where it can."""
    spans = layout.ranks > cluster.gpus_per_node and layout.dp > 1
    if not spans or _joins_evenly(layout, cluster) or separate_servers(layout, cluster) is not None:
        return None
    return (
        f"{layout.dp} replicas of {layout.attention_tp * layout.pp} ranks do not fill nodes of "
        f"{cluster.gpus_per_node} evenly: start them through Ray (--data-parallel-backend ray)"
    )


def _local_replicas(request: LaunchRequest) -> int:
    return request.plan.layout.dp // request.nodes


def _settings(request: LaunchRequest, name: str) -> int | float | None:
    return getattr(request.plan.settings, name) if request.plan.settings else None


def _second_copies(request: LaunchRequest) -> str | None:
    redundant = request.workload.redundant_experts
    return f'{{"num_redundant_experts": {redundant}}}' if redundant else None


def _tower(request: LaunchRequest) -> str | None:
    """The vision tower is held whole where its heads do not divide, as the accounting assumes; cut where they do."""
    tower = request.profile.vision if request.profile is not None else None
    return "data" if tower is not None and tower.num_heads % request.plan.layout.attention_tp else None


def _predictors(request: LaunchRequest) -> str | None:
    drafted = request.workload.drafted(VLLM_DRAFTED)
    return json.dumps({"method": "mtp", "num_speculative_tokens": drafted}) if drafted else None


FLAGS: tuple[Flag, ...] = (
    Flag("--revision", lambda r, _: r.revision),
    Flag("--tensor-parallel-size", lambda r, _: r.plan.layout.tp),
    Flag("--pipeline-parallel-size", lambda r, _: r.plan.layout.pp if r.plan.layout.pp > 1 else None),
    Flag("--data-parallel-size", lambda r, _: r.plan.layout.dp if r.plan.layout.dp > 1 else None),
    Flag("--data-parallel-size-local", lambda r, _: _local_replicas(r) if _spans_by_replicas(r) else None),
    Flag(
        "--data-parallel-start-rank",
        lambda r, node: node.times(_local_replicas(r)) if _spans_by_replicas(r) and not node.is_head else None,
    ),
    Flag("--data-parallel-address", lambda r, _: HEAD if _spans_by_replicas(r) else None),
    Flag("--data-parallel-rpc-port", lambda r, _: RPC_PORT if _spans_by_replicas(r) else None),
    Flag("--enable-expert-parallel", lambda r, _: r.plan.layout.ep > 1),
    Flag("--enable-eplb", lambda r, _: r.workload.redundant_experts > 0),
    Flag("--eplb-config", lambda r, _: _second_copies(r)),
    Flag("--decode-context-parallel-size", lambda r, _: r.plan.layout.cp if r.plan.layout.cp > 1 else None),
    Flag("--max-model-len", lambda r, _: r.workload.context),
    Flag("--max-num-seqs", lambda r, _: _settings(r, "max_num_seqs")),
    Flag("--max-num-batched-tokens", lambda r, _: _settings(r, "max_batched_tokens")),
    Flag("--gpu-memory-utilization", lambda r, _: _settings(r, "mem_fraction")),
    Flag("--kv-cache-dtype", lambda r, _: KV_DTYPES.get(r.workload.kv_dtype)),
    Flag("--speculative-config", lambda r, _: _predictors(r)),
    Flag("--mm-encoder-tp-mode", lambda r, _: _tower(r)),
    Flag("--nnodes", lambda r, _: r.nodes if r.nodes > 1 and not _spans_by_replicas(r) else None),
    Flag("--node-rank", lambda r, node: node.times(1) if r.nodes > 1 and not _spans_by_replicas(r) else None),
    Flag("--master-addr", lambda r, _: HEAD if r.nodes > 1 and not _spans_by_replicas(r) else None),
    Flag("--headless", lambda _, node: not node.is_head),
    Flag("--host", lambda r, node: r.host if node.is_head else None),
    Flag("--port", lambda r, node: r.port if node.is_head else None),
)


def launch(request: LaunchRequest) -> Launch:
    """One `vllm serve` per node; the environment tells vLLM which layers each stage gets."""
    servers = separate_servers(request.plan.layout, request.cluster) or 1
    if servers > 1 and not _joins_evenly(request.plan.layout, request.cluster):
        return several(launch(one_of(request, servers)), servers)
    table = flag_table("vllm")
    env = dict(request.facts.env)
    if partition := stage_partition(request.plan):
        env["VLLM_PP_LAYER_PARTITION"] = partition
    image = request.facts.image or default_image(
        IMAGES, request.cluster.gpu.vendor, request.engine_version, table.versions[-1]
    )
    if reason := obstacle(request.plan.layout, request.cluster):
        return Launch((), env, image=image, port=request.port, notes=(reason,))
    argv, worker = command_lines(FLAGS, request, ("vllm", "serve", request.model))
    stale = too_old(request) or table.complaints([word for line in argv for word in line], request.engine_version)
    if stale:
        return Launch((), env, image=image, port=request.port, notes=stale)
    checked = table.record(request.engine_version)
    return Launch(argv, env, worker, image, request.port, request.facts.notes, checked)
