"""A plan file against the plan made again from it: nothing where nothing changed, each change by its name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from day0.plan.layout import LayoutRequest
from day0.plan.plan import Plan, Planner
from day0.plan.plan_changes import changes
from day0.plan.plan_file import PlanFile, read_plan, write_plan
from day0.profile.profile import ArchitectureProfile


@pytest.fixture
def made(planner: Any, kimi_k3: ArchitectureProfile) -> Planner:
    found: Planner = planner(kimi_k3, "b300:8", "vllm", context=65536)
    return found


def saved_and_again(made: Planner, tmp_path: Path, old: str = "", new: str = "") -> tuple[PlanFile, Planner, Plan]:
    """A file with one edit, read back, and the plan made again from it."""
    plan = made.plan(made.accounting.complete(LayoutRequest(tp=8, ep=8), made.profile, 8))
    text = write_plan(
        plan, model="org/model", revision=None, version=None, cluster=made.cluster, workload=made.workload
    )
    assert old in text
    path = tmp_path / "plan.yaml"
    path.write_text(text.replace(old, new, 1))
    saved = read_plan(path)
    again = Planner(made.profile, saved.cluster, made.accounting, saved.workload)
    return saved, again, again.plan(saved.layout)


def test_a_file_that_still_holds_has_no_changes(made: Planner, tmp_path: Path) -> None:
    assert changes(*saved_and_again(made, tmp_path), "org/model", None) == ()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("max_num_seqs: 1024", "max_num_seqs: 9", "settings.max_num_seqs is 9 in the file and 1024 now"),
        ("  weights: ", "  weights: 1  # ", "predicted[0].weights is 0.000 GiB (1 bytes) in the file and"),
        ("  layers: 93", "  layers: 92", "predicted[0].layers is 92 in the file and 93 now"),
        ("  memory_bytes: 287429948866", "  memory_bytes: 300000000000", "recipes/clusters/b300.yaml has 287429948866"),
        ("  concurrency: 1", "  concurrency: 4000", "settings.max_num_seqs is 1024 in the file and 4000 now"),
    ],
)
def test_an_edit_is_found(made: Planner, tmp_path: Path, old: str, new: str, said: str) -> None:
    found = changes(*saved_and_again(made, tmp_path, old, new), "org/model", None)
    assert any(said in change for change in found), found


def test_another_model_engine_or_stage_count_is_found(made: Planner, tmp_path: Path) -> None:
    saved, again, plan = saved_and_again(made, tmp_path)
    (change,) = changes(saved, again, plan, "org/other", None)
    assert change == "model.id is org/model in the file and org/other now"
    (change,) = changes(saved, again, plan, "org/model", "abc")
    assert change.startswith("model.revision is None")
    found = changes(replace(saved, engine="sglang", predicted=()), again, plan, "org/model", None)
    assert found == (
        "engine.name is sglang in the file and vllm now",
        "predicted: 0 stages in the file and 1 now",
    )
