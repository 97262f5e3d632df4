"""A compose file: one service per node, each to be started on its own host."""

from __future__ import annotations

from typing import Any

from day0.engines.launch import Launch, LaunchRequest
from day0.engines.shell import is_open
from day0.source.data_files import dump_yaml

SHARED_MEMORY = "32gb"
"""Room for the ranks of a node to exchange tensors through /dev/shm."""


def compose_file(request: LaunchRequest, launch: Launch) -> str:
    """`docker compose up node-0` on the head, `node-1` on the next, each with HEAD_ADDRESS set in its environment."""
    services = {f"node-{node}": _service(request, launch, argv) for node, argv in enumerate(launch.argv)}
    return dump_yaml({"services": services})


def _service(request: LaunchRequest, launch: Launch, argv: tuple[str, ...]) -> dict[str, Any]:
    service: dict[str, Any] = {
        "image": launch.image,
        "entrypoint": [argv[0]],
        "command": [_literal(word) for word in argv[1:]],
        "network_mode": "host",
        "ipc": "host",
        "shm_size": SHARED_MEMORY,
        "restart": "on-failure",
        "volumes": ["${HF_HOME:-~/.cache/huggingface}:/root/.cache/huggingface"],
    }
    if launch.env:
        service["environment"] = {name: _literal(value) for name, value in launch.env.items()}
    service.update(_devices(request))
    return service


def _literal(word: str) -> str:
    """Compose fills in variables in every string; only those of the launch are meant to be."""
    return word if is_open(word) else word.replace("$", "$$")


def _devices(request: LaunchRequest) -> dict[str, Any]:
    """How compose hands over GPUs: a reservation for NVIDIA, device files for AMD."""
    if request.cluster.gpu.vendor == "amd":
        return {"devices": ["/dev/kfd", "/dev/dri"], "group_add": ["video", "render"]}
    gpus = min(request.cluster.gpus_per_node, request.plan.layout.ranks)
    reservation = {"driver": "nvidia", "count": gpus, "capabilities": ["gpu"]}
    return {"deploy": {"resources": {"reservations": {"devices": [reservation]}}}}
