"""`run-checklist --self-test`: a fault for every check, found; one that nobody finds is exit 1."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from day0.checklist import probe_faults
from day0.checklist.probe_faults import FAULTS, Fault
from day0.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict]:
    status = main(["run-checklist", *map(str, words), "--self-test", "--device", "cpu", "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_every_fault_is_found(tiny_llama: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = run(capsys, tiny_llama, "--checklist", "quick", "--phase", "loading", "--phase", "startup")
    assert (status, found["schema"]) == (0, "day0.self-test/1")
    tried = {trial["id"]: trial for trial in found["trials"]}
    idle = {name for name, trial in tried.items() if trial["outcome"] == "not-checked"}
    assert idle <= {"loading.packed", "startup.plan"} and {tried[name]["sound"] for name in idle} == {"na"}
    for name in tried.keys() - idle:
        assert (tried[name]["outcome"], tried[name]["broken"]) == ("found", "fail")
    assert {"startup.device", "loading.values"} <= tried.keys() - idle


def test_a_fault_that_is_missed_is_exit_1(
    tiny_llama: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    harmless = Fault("nothing at all", nullcontext)
    monkeypatch.setattr(probe_faults, "FAULTS", {**FAULTS, "startup.cache": harmless})
    status, found = run(capsys, tiny_llama, "--checklist", "quick", "--phase", "startup")
    assert status == 1
    assert [trial["id"] for trial in found["trials"] if trial["outcome"] == "missed"] == ["startup.cache"]


def test_where_nothing_can_be_put_in_nothing_is_said(tiny_llama: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = run(capsys, tiny_llama, "--checklist", "quick", "--phase", "multimodal")
    assert status == 4
    assert {trial["outcome"] for trial in found["trials"]} == {"not-checked"}
