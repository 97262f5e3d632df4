"""Emitted forms are run or parsed: a stand-in engine on the path writes down the command line that reaches it."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from day0.engines.emit import EMIT_FORMS
from day0.engines.emit_k8s import resource_name
from day0.engines.launch import Launch, LaunchRequest, default_image
from day0.engines.table import LAUNCHERS
from day0.engines.vllm import IMAGES
from day0.errors import InputError
from day0.plan.recipe import LaunchFacts
from day0.source.data_files import load_yaml

HOSTILE = "org/it's $(touch pwned) `touch pwned` ${HOME}"


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """A folder with engines, `srun` and `scontrol` that only write down what they were called with."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("vllm", "python3"):
        path = folder / name
        path.write_text('#!/bin/bash\nprintf "%s\\n" "$(basename "$0")" "$@" > "$CALLED.${NODE_RANK:-0}"\n')
        path.chmod(0o755)
    scontrol = folder / "scontrol"
    scontrol.write_text("#!/bin/bash\nprintf 'first-node\\nsecond-node\\n'\n")
    srun = folder / "srun"
    srun.write_text('#!/bin/bash\nshift\nfor SLURM_NODEID in 0 1; do export SLURM_NODEID; "$@"; done\n')
    for path in (scontrol, srun):
        path.chmod(0o755)
    return folder


def run(script: str, folder: Path, **environment: str) -> dict[int, list[str]]:
    """Run a script; the command lines that engines were called with, by node."""
    called = folder.parent / "called"
    path = f"{folder}:{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-c", script],
        check=True,
        cwd=folder.parent,
        env={"PATH": path, "CALLED": str(called), "HOME": str(folder), **environment},
    )
    assert not (folder.parent / "pwned").exists()
    return {int(file.suffix[1:]): file.read_text().splitlines() for file in sorted(folder.parent.glob("called.*"))}


def filled(argv: tuple[str, ...], address: str) -> list[str]:
    return [word.replace("${HEAD_ADDRESS}", address) for word in argv]


def launched(request: LaunchRequest) -> Launch:
    return LAUNCHERS[request.plan.engine](request)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_command_is_the_plans_whatever_the_model_is_called(request_for: Any, stand_in: Path, engine: str) -> None:
    request = request_for("llama-3.1-8b", "h100:2", engine, model=HOSTILE, tp=2, demand={"context": 8192})
    launch = launched(request)
    (called,) = run(EMIT_FORMS["command"](request, launch), stand_in).values()
    assert called == list(launch.argv[0])


def test_commands_of_several_nodes_are_labelled(request_for: Any) -> None:
    request = request_for("kimi-k3", "b200:8x2", "vllm", tp=8, pp=2)
    text = EMIT_FORMS["command"](request, launched(request))
    assert "# node 0\nvllm serve" in text and "# node 1\nvllm serve" in text
    assert "export VLLM_PP_LAYER_PARTITION=47,46\n" in text and '"${HEAD_ADDRESS}"' in text


@pytest.mark.parametrize(
    ("engine", "sizes"),
    [("vllm", {"tp": 8, "pp": 2}), ("vllm", {"tp": 4, "dp": 4, "ep": 16}), ("sglang", {"tp": 8, "pp": 2})],
)
def test_a_slurm_job_starts_every_node_with_its_own_command(
    request_for: Any, stand_in: Path, engine: str, sizes: dict[str, int]
) -> None:
    request = request_for("kimi-k3", "b200:8x2", engine, model=HOSTILE, **sizes)
    launch = launched(request)
    script = EMIT_FORMS["slurm"](request, launch)
    assert "#SBATCH --nodes=2\n" in script and "#SBATCH --gpus-per-node=8\n" in script
    called = run(script, stand_in, SLURM_JOB_NODELIST="nodes")
    assert called == {node: filled(argv, "first-node") for node, argv in enumerate(launch.argv)}


def test_a_slurm_job_of_one_node_needs_no_branch(request_for: Any, stand_in: Path) -> None:
    request = request_for("llama-3.1-8b", "h100:2", "vllm", tp=2, demand={"context": 8192})
    script = EMIT_FORMS["slurm"](request, launched(request))
    assert "if [" not in script and "#SBATCH --gpus-per-node=2\n" in script
    subprocess.run(["bash", "-n", "-c", script], check=True)


def kubelet(text: str) -> str:
    """What a kubelet makes of a command: `$(NAME)` is filled in where it knows NAME, and `$$(` stands for `$(`."""
    assert not re.search(r"(?<!\$)\$\((?!\()", text), "a reference that a kubelet would try to fill in"
    return text.replace("$$(", "$(")


def documents(text: str, tmp_path: Path) -> list[Any]:
    made = []
    for number, part in enumerate(text.split("---\n")):
        path = tmp_path / f"{number}.yaml"
        path.write_text(part)
        made.append(load_yaml(path))
    return made


def test_kubernetes_runs_nodes_as_a_leader_and_workers(request_for: Any, stand_in: Path, tmp_path: Path) -> None:
    request = request_for("kimi-k3", "b200:8x2", "vllm", model=HOSTILE, tp=8, pp=2)
    launch = launched(request)
    workload, service = documents(EMIT_FORMS["k8s"](request, launch), tmp_path)
    assert workload["kind"] == "LeaderWorkerSet" and workload["apiVersion"].startswith("leaderworkerset")
    template = workload["spec"]["leaderWorkerTemplate"]
    assert template["size"] == 2
    leader = template["leaderTemplate"]["spec"]["containers"][0]
    worker = template["workerTemplate"]["spec"]["containers"][0]
    assert leader["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert {"name": "VLLM_PP_LAYER_PARTITION", "value": "47,46"} in worker["env"]
    assert "readinessProbe" in leader and "readinessProbe" not in worker
    assert service["spec"]["selector"] == template["leaderTemplate"]["metadata"]["labels"]
    for node, container in enumerate((leader, worker)):
        called = run(
            kubelet(container["command"][2]),
            stand_in,
            LWS_LEADER_ADDRESS="lead",
            LWS_WORKER_INDEX=str(node),
            NODE_RANK=str(node),
        )
        assert called[node] == filled(launch.argv[node], "lead")


def test_kubernetes_on_one_node_is_a_deployment(request_for: Any, tmp_path: Path) -> None:
    request = request_for(
        "llama-3.1-8b", "mi300x:1", "sglang", facts=LaunchFacts(image="rocm/image"), demand={"context": 8192}
    )
    workload, service = documents(EMIT_FORMS["k8s"](request, launched(request)), tmp_path)
    assert workload["kind"] == "Deployment"
    container = workload["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "rocm/image" and container["resources"]["limits"] == {"amd.com/gpu": 1}
    assert service["spec"]["selector"] == workload["spec"]["selector"]["matchLabels"]


def test_compose_has_a_service_per_node_and_fills_in_the_head_only(request_for: Any, tmp_path: Path) -> None:
    request = request_for("kimi-k3", "b200:8x2", "vllm", model=HOSTILE, tp=8, pp=2)
    launch = launched(request)
    (compose,) = documents(EMIT_FORMS["compose"](request, launch), tmp_path)
    assert list(compose["services"]) == ["node-0", "node-1"]
    for node, service in enumerate(compose["services"].values()):
        words = [*service["entrypoint"], *service["command"]]
        assert [word.replace("$$", "$") for word in words] == list(launch.argv[node])
        assert all(word == "${HEAD_ADDRESS}" for word in words if "$" in word.replace("$$", ""))
        devices = service["deploy"]["resources"]["reservations"]["devices"]
        assert devices == [{"driver": "nvidia", "count": 8, "capabilities": ["gpu"]}]
        assert service["environment"] == {"HF_TOKEN": "${HF_TOKEN:-}", "HF_HOME": "/hf", **launch.env}


def test_amd_gpus_reach_a_container_as_devices(request_for: Any, tmp_path: Path) -> None:
    request = request_for("llama-3.1-8b", "mi300x:1", "vllm", demand={"context": 8192})
    (compose,) = documents(EMIT_FORMS["compose"](request, launched(request)), tmp_path)
    assert compose["services"]["node-0"]["devices"] == ["/dev/kfd", "/dev/dri"]


def test_workers_of_kubernetes_count_their_replicas_by_themselves(
    request_for: Any, stand_in: Path, tmp_path: Path
) -> None:
    request = request_for("kimi-k3", "b200:8x2", "vllm", tp=4, dp=4, ep=16)
    launch = launched(request)
    workload, _ = documents(EMIT_FORMS["k8s"](request, launch), tmp_path)
    worker = workload["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]
    variables = {"LWS_LEADER_ADDRESS": "lead", "LWS_WORKER_INDEX": "1", "NODE_RANK": "1"}
    assert run(kubelet(worker["command"][2]), stand_in, **variables)[1] == filled(launch.argv[1], "lead")


@pytest.mark.parametrize(("spec", "resource"), [("gaudi3:8", "habana.ai/gaudi"), ("h100:8", "nvidia.com/gpu")])
def test_gpus_of_each_maker_have_their_own_resource(request_for: Any, tmp_path: Path, spec: str, resource: str) -> None:
    facts = LaunchFacts(image="some/image")
    request = request_for("llama-3.1-8b", spec, "vllm", facts=facts, tp=8, demand={"context": 8192})
    workload, _ = documents(EMIT_FORMS["k8s"](request, launched(request)), tmp_path)
    limits = workload["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {resource: 8}


@pytest.mark.parametrize(("form", "spec"), [("k8s", "kunlun-r200:8"), ("compose", "gaudi3:8")])
def test_makers_whose_devices_are_not_known_are_refused(request_for: Any, form: str, spec: str) -> None:
    facts = LaunchFacts(image="some/image")
    request = request_for("llama-3.1-8b", spec, "vllm", facts=facts, tp=8, demand={"context": 8192})
    with pytest.raises(InputError, match=r"not known|is known"):
        EMIT_FORMS[form](request, launched(request))


def test_a_model_on_this_machine_is_mounted_where_the_command_looks_for_it(request_for: Any, tmp_path: Path) -> None:
    folder = tmp_path / "a model$"
    folder.mkdir()
    request = request_for("llama-3.1-8b", "h100:1", "vllm", model=str(folder), demand={"context": 8192})
    request = replace(request, folder=folder)
    launch = launched(request)
    (compose,) = documents(EMIT_FORMS["compose"](request, launch), tmp_path)
    bind = compose["services"]["node-0"]["volumes"][1]
    assert bind["source"].replace("$$", "$") == bind["target"].replace("$$", "$") == launch.argv[0][2]
    workload, _ = documents(EMIT_FORMS["k8s"](request, launch), tmp_path)
    pod = workload["spec"]["template"]["spec"]
    assert {"name": "model", "hostPath": {"path": str(folder), "type": "Directory"}} in pod["volumes"]
    assert {"name": "model", "mountPath": str(folder)} in pod["containers"][0]["volumeMounts"]


@pytest.mark.parametrize(
    ("vendor", "version", "image"),
    [
        ("nvidia", None, "vllm/vllm-openai:v0.32.0"),
        ("", "0.26.0", "vllm/vllm-openai:v0.26.0"),
        ("amd", "nightly 2026-11", "vllm/vllm-openai-rocm:v0.32.0"),
        ("cambricon", None, None),
    ],
)
def test_images_are_those_of_the_maker_and_the_version(vendor: str, version: str | None, image: str | None) -> None:
    assert default_image(IMAGES, vendor, version, "0.32.0") == image


@pytest.mark.parametrize(
    ("model", "name"),
    [("moonshotai/Kimi-K3", "kimi-k3"), ("/data/My Model/", "my-model"), ("x" * 80, "x" * 50), ("___", "model")],
)
def test_resources_are_named_after_the_model(model: str, name: str) -> None:
    assert resource_name(model) == name


def test_alike_servers_are_replicas_and_array_tasks(request_for: Any, stand_in: Path, tmp_path: Path) -> None:
    request = request_for("llama-3.1-8b", "h100:8x2", "sglang", tp=8, dp=2, demand={"context": 8192})
    launch = launched(request)
    workload, service = documents(EMIT_FORMS["k8s"](request, launch), tmp_path)
    assert (workload["kind"], workload["spec"]["replicas"]) == ("Deployment", 2)
    assert service["spec"]["selector"] == workload["spec"]["template"]["metadata"]["labels"]
    script = EMIT_FORMS["slurm"](request, launch)
    assert "#SBATCH --array=0-1\n" in script and "#SBATCH --nodes=1\n" in script
    assert run(EMIT_FORMS["command"](request, launch), stand_in) == {0: list(launch.argv[0])}
    for form in ("command", "compose"):
        assert "one of 2 servers" in EMIT_FORMS[form](request, launch)
    groups = request_for("deepseek-r1", "h100:8x4", "sglang", tp=8, pp=2, dp=2)
    workload, _ = documents(EMIT_FORMS["k8s"](groups, launched(groups)), tmp_path)
    assert (workload["kind"], workload["spec"]["replicas"]) == ("LeaderWorkerSet", 2)
    assert workload["spec"]["leaderWorkerTemplate"]["size"] == 2
