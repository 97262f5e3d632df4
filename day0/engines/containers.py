"""What a container of an engine needs of its host: GPUs, the model's files, a token for the hub, shared memory."""

from __future__ import annotations

from day0.engines.launch import LaunchRequest
from day0.errors import InputError

SHARED_MEMORY_GIB = 32
"""Room for the ranks of a node to exchange tensors through /dev/shm."""

HUB_CACHE = "/hf"
"""Where the cache of hub models is mounted; containers are told by HF_HOME, whoever they run as."""

RESOURCES = {
    "nvidia": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "intel": "habana.ai/gaudi",
    "huawei": "huawei.com/Ascend910",
    "cambricon": "cambricon.com/mlu",
    "moorethreads": "mthreads.com/gpu",
}
"""The names under which the makers' own device plugins hand GPUs to Kubernetes, by maker."""


def gpus_of_a_node(request: LaunchRequest) -> int:
    return min(request.cluster.gpus_per_node, request.plan.layout.ranks)


def vendor(request: LaunchRequest) -> str:
    """The GPU's maker; a cluster file that names none is taken for NVIDIA's."""
    return request.cluster.gpu.vendor or "nvidia"


def resource(request: LaunchRequest) -> str:
    """The Kubernetes resource of the GPU; raises InputError for a maker whose plugin is not known."""
    name = RESOURCES.get(vendor(request))
    if name is None:
        raise InputError(
            f"no Kubernetes resource is known for GPUs of {vendor(request)}",
            where="--emit k8s",
            hint=f"--emit command, or a cluster file whose `vendor` is one of {', '.join(RESOURCES)}",
        )
    return name


def model_folder(request: LaunchRequest) -> str | None:
    """The folder that holds the model on the host, mounted in the container under the same path."""
    if request.folder is None or request.model not in (str(request.folder), str(request.folder.resolve())):
        return None
    return str(request.folder.resolve())
