from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from day0.errors import InputError
from day0.plan.layout import LayoutRequest
from day0.plan.plan_file import SCHEMA, read_plan, write_plan
from day0.profile.profile import ArchitectureProfile


@pytest.fixture
def written(tmp_path: Path, planner: Any, kimi_k3: ArchitectureProfile) -> Path:
    made = planner(kimi_k3, "b300:8", "vllm", context=65536, concurrency=4, kv_dtype="fp8")
    plan = made.plan(made.accounting.complete(LayoutRequest(tp=8, ep=8), kimi_k3, 8))
    path = tmp_path / "plan.yaml"
    path.write_text(
        write_plan(
            plan, model="org/model", revision="abc", version="0.32.0", cluster=made.cluster, workload=made.workload
        )
    )
    return path


def test_a_plan_reads_back_as_it_was(written: Path, planner: Any, kimi_k3: ArchitectureProfile) -> None:
    saved = read_plan(written)
    assert (saved.model, saved.revision, saved.engine, saved.engine_version) == ("org/model", "abc", "vllm", "0.32.0")
    made = planner(kimi_k3, "b300:8", "vllm", context=65536, concurrency=4, kv_dtype="fp8")
    assert saved.workload == made.workload
    plan = made.plan(saved.layout)
    assert saved.settings == plan.settings
    assert saved.predicted[0]["weights"] == plan.ranks[0].weights
    assert saved.cluster.gpus == 8 and saved.cluster.gpu.memory_bytes == made.cluster.gpu.memory_bytes


def test_the_file_is_for_people(written: Path) -> None:
    text = written.read_text()
    assert text.startswith(f"schema: {SCHEMA}\n")
    assert "\nlayout:\n  tp: 8\n" in text and "&id" not in text


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        (f"schema: {SCHEMA}", "schema: something/1", "schema"),
        ("  tp: 8", "  tp: eight", "layout.tp"),
        ("  tp: 8", "  tp: 0", "layout.tp"),
        ("  tp: 8", "  tpp: 8", "tpp"),
        ("workload:\n", "workloads:\n", "workloads"),
        ("  context: 65536", "  context: null", "context"),
        ("  concurrency: 4", "  concurrency: many", "workload.concurrency"),
        ("  memory_bytes", "  memory", "memory"),
        ("engine:\n  name: vllm", "engine:\n  label: vllm", "label"),
        ("engine:\n  name: vllm\n  version: 0.32.0", "engine:\n  name: vllm\n  version: 0.32", "engine.version"),
        ("  tp: 8", "  tp: 1000000000000", "layout.tp"),
        ("  tp: 8", "  tp: true", "layout.tp"),
        ("  concurrency: 4", "  concurrency: 1" + 400 * "0", "workload"),
        ("  concurrency: 4", "  concurrency: null", "workload.concurrency"),
        ("  prompt: ", "  prompt: null  # ", "workload.prompt"),
        ("settings:\n  mem_fraction:", "settings:\n  mem_fraction: half  #", "settings.mem_fraction"),
        ("settings:\n", "settings:\n  x_", "settings"),
        ("predicted:\n- rank: 0", "predicted:\n- rank: first", "predicted[0]"),
        ("predicted:\n", "predicted: 1\nother:\n", "other"),
        ("  memory_bytes: ", "  memory_bytes: .nan  # ", "memory_bytes"),
        ("  memory_bytes: ", "  memory_bytes: .inf  # ", "memory_bytes"),
        ("  gpus_per_node: 8", "  gpus_per_node: 1" + 400 * "0", "gpus_per_node"),
        ("  gpus_per_node: 8", "  gpus_per_node: 1000000", "GPUs"),
    ],
)
def test_a_spoilt_file_is_refused_with_the_place(written: Path, old: str, new: str, word: str) -> None:
    text = written.read_text()
    assert old in text
    written.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        read_plan(written)
    assert "plan.yaml" in str(caught.value) and word in str(caught.value)


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("- 1\n")
    with pytest.raises(InputError, match="not a plan file"):
        read_plan(path)
