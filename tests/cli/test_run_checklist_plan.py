"""`day0 run-checklist --plan`: the runtime starts as a plan file says, and its memory is held against it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from day0.cli.main import main


@pytest.fixture
def plan(tmp_path: Path, capsys: pytest.CaptureFixture[str], tiny_llama: Path) -> Path:
    demand = ("--cluster", "h200:1", "--context", "100", "--max-num-seqs", "3")
    assert main(["plan", str(tiny_llama), *demand, "--emit", "yaml"]) == 0
    path = tmp_path / "plan.yaml"
    path.write_text(capsys.readouterr().out)
    return path


def run(folder: Path, plan: Path, *options: str) -> int:
    report = ("--report-dir", str(plan.parent / "report"), "--phase", "startup", "--reference", "runtime")
    return main(["run-checklist", str(folder), "--plan", str(plan), *report, *options])


@pytest.mark.parametrize("options", [(), ("--stream",)])
def test_the_report_shows_what_was_planned_and_what_was_held(
    plan: Path, tiny_llama: Path, options: tuple[str, ...]
) -> None:
    assert run(tiny_llama, plan, *options) == 4, "one phase alone says nothing about the others"
    document = json.loads((plan.parent / "report" / "checklist.json").read_text())
    checks = {check["id"]: check for phase in document["phases"] for check in phase["checks"]}
    found = checks["startup.plan"]
    assert found["status"] == "pass" and found["measured"]["plan_error"] == 0.0
    assert found["measured"]["allocated_bytes"] == found["measured"]["plan_bytes"]
    assert checks["startup.cache"]["measured"]["max_model_len"] == 100
    assert "Memory, planned and held" in (plan.parent / "report" / "report.html").read_text()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("name: day0", "name: vllm", "the plan is for vllm"),
        ("context: 100", "context: many", "workload.context"),
        ("memory_bytes: 150109880320", "memory_bytes: 1000", "does not fit this model"),
    ],
)
def test_a_plan_that_cannot_be_started_is_refused(
    plan: Path, tiny_llama: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    text = plan.read_text()
    assert old in text
    plan.write_text(text.replace(old, new))
    assert run(tiny_llama, plan) == 2
    assert said in capsys.readouterr().err


def test_a_server_elsewhere_takes_no_plan(plan: Path, tiny_llama: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tiny_llama, plan, "--target", "http://127.0.0.1:9") == 2
    assert "--plan" in capsys.readouterr().err
