"""`day0 trace --tp 2`: processes are started and joined, and a fault that one of them has is named with its rank."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rank_models import prompt, written

from day0.cli.main import main

IDS = ",".join(map(str, prompt(24)))
TP2 = ("--tp", "2")


@pytest.mark.parametrize(
    ("fault", "operator"), [("heads", "mixer.q"), ("norm", "ffn_in")], ids=["a share", "what all have alike"]
)
def test_a_fault_of_one_process_is_named_with_its_rank(
    fault: str, operator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written("llama-3.1-8b", tmp_path / fault)
    arguments = ["--token-ids", IDS, "--device", "cpu"]
    assert main(["trace", str(folder), str(tmp_path / "one"), *arguments]) == 0
    monkeypatch.setattr("day0.runtime.engine.lead.FOLLOWER", "faulty_rank")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    assert main(["trace", str(folder), str(tmp_path / "two"), *arguments, "--tp", "2"]) == 0
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "one"), str(tmp_path / "two"), "--json"]) == 1
    first = json.loads(capsys.readouterr().out)["first"]
    assert (first["layer"], first["operator"], first["rank"]) == (1, operator, 1)


@pytest.mark.slow
def test_a_run_of_ranks_goes_on_from_anothers_tensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--feed` reaches every rank: each block's own error is measured."""
    folder = written("qwen3-30b-a3b", tmp_path / "model")
    arguments = ["--token-ids", IDS, "--device", "cpu"]
    out = {name: str(tmp_path / name) for name in ("one", "two", "fed")}
    assert main(["trace", str(folder), out["one"], *arguments]) == 0
    assert main(["trace", str(folder), out["two"], *arguments, *TP2]) == 0
    assert main(["trace", str(folder), out["fed"], *arguments, *TP2, "--feed", out["one"]]) == 0
    capsys.readouterr()
    assert main(["compare", out["one"], out["two"], "--fed", out["fed"], "--json"]) == 0
    nodes = json.loads(capsys.readouterr().out)["nodes"]
    assert all(node["added_how"] == "measured" for node in nodes if node["operator"] in ("mixer_out", "output"))


def test_shares_are_not_kept_in_parts_that_do_not_join(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["trace", "recipe:qwen3-30b-a3b", str(tmp_path / "x"), "--token-ids", "1,2", *TP2, "--stats"]
    assert main(arguments) == 2
    assert "cannot be put together" in capsys.readouterr().err
