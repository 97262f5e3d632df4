"""A Slurm batch script: one task per node, each starting its node's command line."""

from __future__ import annotations

import shlex

from day0.engines.containers import gpus_of_a_node
from day0.engines.emit_k8s import resource_name
from day0.engines.launch import NODE_RANK, Launch, LaunchRequest
from day0.engines.shell import shell_line


def batch_script(request: LaunchRequest, launch: Launch) -> str:
    """For `sbatch`; the head is the first node of the allocation. Alike servers are the tasks of a job array."""
    exports = [f"export {name}={shlex.quote(value)}" for name, value in launch.env.items()]
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={resource_name(request.model)}",
        *([f"#SBATCH --array=0-{launch.servers - 1}"] if launch.servers > 1 else []),
        f"#SBATCH --nodes={launch.nodes}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={gpus_of_a_node(request)}",
        "#SBATCH --exclusive",
        "set -euo pipefail",
        # awk reads on to the end: `head` would not, and pipefail takes scontrol's broken pipe for a failure
        'HEAD_ADDRESS=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | awk "NR == 1")',
        "export HEAD_ADDRESS",
        *exports,
        "node() {",
        f'  export {NODE_RANK}="$SLURM_NODEID"',
        *_branches(launch),
        "}",
        "export -f node",
        "srun --kill-on-bad-exit=1 bash -c node",
    ]
    return "\n".join(lines) + "\n"


def _branches(launch: Launch) -> list[str]:
    head = f"exec {shell_line(launch.argv[0])}"
    if launch.worker is None:
        return [head]
    worker = f"exec {shell_line(launch.worker)}"
    return [f'if [ "${NODE_RANK}" -eq 0 ]; then', head, "else", worker, "fi"]
