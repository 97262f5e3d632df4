"""Replicas that share nothing, on several nodes: they are started as alike servers of their own, behind a router."""

from __future__ import annotations

from dataclasses import replace

from day0.engines.launch import Launch, LaunchRequest
from day0.plan.cluster import Cluster
from day0.plan.layout import Layout


def separate_servers(layout: Layout, cluster: Cluster) -> int | None:
    """How many servers the replicas of a layout make, each on whole nodes of its own; 1 on a single node.

    None where the layout is one server over several nodes, or its replicas do not fill whole nodes.
    """
    node, replica = cluster.gpus_per_node, layout.attention_tp * layout.pp
    if layout.ranks <= node:
        return 1
    shares_experts = layout.ep * layout.expert_tp > layout.attention_tp
    if layout.dp == 1 or layout.tp != layout.attention_tp or shares_experts:
        return None
    if node % replica == 0 and layout.ranks % node == 0:
        return layout.ranks // node
    return layout.dp if replica % node == 0 else None


def one_of(request: LaunchRequest, servers: int) -> LaunchRequest:
    """The request for one of so many alike servers: its share of the replicas and of the nodes."""
    layout = replace(request.plan.layout, dp=request.plan.layout.dp // servers)
    cluster = replace(request.cluster, nodes=max(1, request.nodes // servers))
    return replace(request, plan=replace(request.plan, layout=layout), cluster=cluster)


def several(launch: Launch, servers: int) -> Launch:
    """The launch of one server as that of so many alike ones."""
    if servers == 1 or not launch.argv:
        return launch
    remark = f"{servers} servers, alike and apart, each on {launch.nodes} node(s): a router shares out the requests"
    return replace(launch, servers=servers, notes=(*launch.notes, remark))


def alike(launch: Launch) -> list[str]:
    """A comment for whoever starts the launch by hand; none for a single server."""
    if launch.servers == 1:
        return []
    return [f"# this is one of {launch.servers} servers, each on {launch.nodes} node(s) of its own, behind a router"]
