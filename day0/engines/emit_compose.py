"""A compose file: one service per node, each to be started on its own host."""

from __future__ import annotations

from typing import Any

from day0.engines.containers import HUB_CACHE, SHARED_MEMORY_GIB, gpus_of_a_node, model_folder, vendor
from day0.engines.launch import Launch, LaunchRequest
from day0.engines.servers import alike
from day0.engines.shell import is_open
from day0.errors import InputError
from day0.source.data_files import dump_yaml


def compose_file(request: LaunchRequest, launch: Launch) -> str:
    """`docker compose up node-0` on the head, `node-1` on the next, each with HEAD_ADDRESS set in its environment."""
    services = {f"node-{node}": _service(request, launch, argv) for node, argv in enumerate(launch.argv)}
    return "".join(f"{line}\n" for line in alike(launch)) + dump_yaml({"services": services})


def _service(request: LaunchRequest, launch: Launch, argv: tuple[str, ...]) -> dict[str, Any]:
    return {
        "image": launch.image,
        "entrypoint": [argv[0]],
        "command": [_literal(word) for word in argv[1:]],
        "network_mode": "host",
        "ipc": "host",
        "shm_size": f"{SHARED_MEMORY_GIB}gb",
        "ulimits": {"memlock": -1, "stack": 67108864},
        "restart": "on-failure",
        "volumes": _volumes(request),
        # the token is passed on from the shell of `docker compose`, never written down
        "environment": {
            "HF_TOKEN": "${HF_TOKEN:-}",
            "HF_HOME": HUB_CACHE,
            **{name: _literal(word) for name, word in launch.env.items()},
        },
        **_devices(request),
    }


def _volumes(request: LaunchRequest) -> list[str | dict[str, Any]]:
    volumes: list[str | dict[str, Any]] = [f"${{HF_HOME:-~/.cache/huggingface}}:{HUB_CACHE}"]
    folder = model_folder(request)
    if folder is not None:
        path = _literal(folder)
        volumes.append({"type": "bind", "source": path, "target": path, "read_only": True})
    return volumes


def _literal(word: str) -> str:
    """Compose fills in variables in every string; only those of the launch are meant to be."""
    return word if is_open(word) else word.replace("$", "$$")


def _devices(request: LaunchRequest) -> dict[str, Any]:
    """How compose hands over GPUs: a reservation for NVIDIA, device files for AMD."""
    maker = vendor(request)
    if maker == "amd":
        return {"devices": ["/dev/kfd", "/dev/dri"], "group_add": ["video", "render"]}
    if maker != "nvidia":
        raise InputError(
            f"how a compose file hands over GPUs of {maker} is not known", where="--emit compose", hint="--emit command"
        )
    reservation = {"driver": "nvidia", "count": gpus_of_a_node(request), "capabilities": ["gpu"]}
    return {"deploy": {"resources": {"reservations": {"devices": [reservation]}}}}
