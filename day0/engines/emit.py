"""A plan's launch as something to run: shell commands, a compose file, Kubernetes manifests, or a Slurm script."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

from day0.engines.emit_compose import compose_file
from day0.engines.emit_k8s import manifests
from day0.engines.emit_slurm import batch_script
from day0.engines.launch import Launch, LaunchRequest
from day0.engines.servers import alike
from day0.engines.shell import shell_line

EmitForm = Callable[[LaunchRequest, Launch], str]


def commands(request: LaunchRequest, launch: Launch) -> str:
    """The environment, then one command line per node."""
    lines = [f"# {request.plan.layout.label}: {request.plan.layout.ranks} ranks on {request.nodes} node(s)"]
    lines += alike(launch)
    if launch.nodes > 1:
        lines.append("export HEAD_ADDRESS=...  # on every node: the address of node 0")
    lines += [f"export {name}={shlex.quote(value)}" for name, value in launch.env.items()]
    for node, argv in enumerate(launch.argv):
        if launch.nodes > 1:
            lines.append(f"# node {node}")
        lines.append(shell_line(argv))
    return "\n".join(lines) + "\n"


EMIT_FORMS: Mapping[str, EmitForm] = {
    "command": commands,
    "compose": compose_file,
    "k8s": manifests,
    "slurm": batch_script,
}
"""The forms by the name that `--emit` takes; the plan file itself ("yaml") needs no engine."""

CONTAINERS = ("compose", "k8s")
"""The forms that start a container, and so need an image."""
