"""Kubernetes manifests: a Deployment on one node, a LeaderWorkerSet over several, and a Service before either."""

from __future__ import annotations

import re
from typing import Any

from day0.engines.containers import HUB_CACHE, SHARED_MEMORY_GIB, gpus_of_a_node, model_folder, resource
from day0.engines.launch import NODE_RANK, Launch, LaunchRequest
from day0.engines.shell import shell_line
from day0.source.data_files import dump_yaml

_START_SECONDS = 3600
"""How long loading may take before the pod is started again."""


def manifests(request: LaunchRequest, launch: Launch) -> str:
    """The workload and its Service, as two YAML documents; alike servers are replicas that the Service shares out."""
    name = resource_name(request.model)
    workload = _deployment(name, request, launch) if launch.nodes == 1 else _leader_worker_set(name, request, launch)
    return "---\n".join(dump_yaml(document) for document in (workload, _service(name, launch)))


def resource_name(model: str) -> str:
    """A DNS label made of the model's last name part."""
    label = re.sub(r"[^a-z0-9-]+", "-", model.rstrip("/").split("/")[-1].lower()).strip("-")
    return label[:50].rstrip("-") or "model"


def _deployment(name: str, request: LaunchRequest, launch: Launch) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": launch.servers,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod(request, launch, launch.argv[0], serves=True)},
        },
    }


def _leader_worker_set(name: str, request: LaunchRequest, launch: Launch) -> dict[str, Any]:
    assert launch.worker is not None
    leader = {"app": name, "role": "leader"}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": launch.servers,
            "leaderWorkerTemplate": {
                "size": launch.nodes,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": {
                    "metadata": {"labels": leader},
                    "spec": _pod(request, launch, launch.argv[0], serves=True),
                },
                "workerTemplate": {"spec": _pod(request, launch, launch.worker, serves=False)},
            },
        },
    }


def _pod(request: LaunchRequest, launch: Launch, argv: tuple[str, ...], *, serves: bool) -> dict[str, Any]:
    variables = ""
    if launch.nodes > 1:
        variables = f'HEAD_ADDRESS="$LWS_LEADER_ADDRESS" {NODE_RANK}="$LWS_WORKER_INDEX"\n'
    volumes = _volumes(request)
    container: dict[str, Any] = {
        "name": "engine",
        "image": launch.image,
        "command": ["/bin/sh", "-c", _literal(f"{variables}exec {shell_line(argv)}")],
        "env": [
            _token(),
            {"name": "HF_HOME", "value": HUB_CACHE},
            *({"name": name, "value": _literal(value)} for name, value in launch.env.items()),
        ],
        "resources": {"limits": {resource(request): gpus_of_a_node(request)}},
        "volumeMounts": [{"name": name, "mountPath": path} for name, (path, _) in volumes.items()],
    }
    if serves:
        health = {"httpGet": {"path": "/health", "port": launch.port}}
        container["ports"] = [{"containerPort": launch.port}]
        container["startupProbe"] = {**health, "periodSeconds": 10, "failureThreshold": _START_SECONDS // 10}
        container["readinessProbe"] = {**health, "periodSeconds": 10}
    return {"containers": [container], "volumes": [{"name": name, **made} for name, (_, made) in volumes.items()]}


def _volumes(request: LaunchRequest) -> dict[str, tuple[str, dict[str, Any]]]:
    """What is mounted where: shared memory, the node's own cache of hub models, and a model's folder."""
    volumes: dict[str, tuple[str, dict[str, Any]]] = {
        "shm": ("/dev/shm", {"emptyDir": {"medium": "Memory", "sizeLimit": f"{SHARED_MEMORY_GIB}Gi"}}),
        "hub": (HUB_CACHE, {"hostPath": {"path": f"/var/lib{HUB_CACHE}", "type": "DirectoryOrCreate"}}),
    }
    folder = model_folder(request)
    if folder is not None:
        volumes["model"] = (folder, {"hostPath": {"path": folder, "type": "Directory"}})
    return volumes


def _token() -> dict[str, Any]:
    """The hub's token, key `token` of a Secret `hf-token`, which may be missing."""
    return {
        "name": "HF_TOKEN",
        "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}},
    }


def _literal(value: str) -> str:
    """Kubernetes fills in `$(NAME)` in commands and in the values of variables, before any shell sees them."""
    return value.replace("$(", "$$(")


def _service(name: str, launch: Launch) -> dict[str, Any]:
    selector = {"app": name, "role": "leader"} if launch.nodes > 1 else {"app": name}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{name}-http"},
        "spec": {"selector": selector, "ports": [{"name": "http", "port": launch.port, "targetPort": launch.port}]},
    }
