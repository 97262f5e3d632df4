"""`day0 ops`: evidence made here is read back, goes stale with its code, and decides the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from day0.cli.main import main
from day0.coverage import read_whitelist, sources
from day0.coverage.sources import kernel_sources, other_versions
from day0.runtime.ops import registry
from day0.runtime.ops.registry import REFERENCE, Kernel
from day0.source.data_files import load_yaml


def test_evidence_is_written_read_and_listed(tmp_path: Path, capsys) -> None:
    whitelist, out = tmp_path / "mine.yaml", tmp_path / "out.json"
    assert main(["ops", "verify", "l2_norm", "--whitelist", str(whitelist), "--json", "--output", str(out)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads(out.read_text())
    assert document["schema"] == "day0.ops-verify/1"
    assert document["contract"] == []
    assert document["device"]["name"] == "cpu"
    (result,) = document["results"]
    assert result["provider"] == REFERENCE
    assert result["status"] == "verified"
    assert 0 < result["ratio"] <= 1
    column = read_whitelist(whitelist).columns["l2_norm", REFERENCE, "cpu"]
    assert column.evidence[0].noise is not None
    assert column.sources == kernel_sources("day0.runtime.ops.norm")
    assert main(["ops", "list", "l2_norm", "--device", "cpu", "--whitelist", str(whitelist), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["columns"]
    assert row["stale"] == ""
    assert row["measurements"] == 9


def test_code_that_changed_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    whitelist = tmp_path / "mine.yaml"
    assert main(["ops", "verify", "l2_norm", "--whitelist", str(whitelist)]) == 0
    columns = read_whitelist(whitelist)
    assert columns.verified_on("cpu") == {("l2_norm", REFERENCE)}
    monkeypatch.setattr(sources, "_digest", lambda path: "another")
    assert columns.verified_on("cpu") == frozenset()
    capsys.readouterr()
    assert main(["ops", "list", "l2_norm", "--whitelist", str(whitelist)]) == 0
    assert "STALE: day0/runtime/ops/norm.py changed since it was measured" in capsys.readouterr().out
    recipe = ["inspect", "recipe:kimi-k3", "--device", "cpu", "--whitelist", str(whitelist), "--json"]
    main(recipe)
    needs = json.loads(capsys.readouterr().out)["operators"]
    (norm,) = {(need["status"], need["reason"]) for need in needs if need["name"] == "l2_norm"}
    assert norm == ("unverified", "stale: day0/runtime/ops/norm.py changed since it was measured")


def test_other_versions_are_told(tmp_path: Path, capsys) -> None:
    whitelist = tmp_path / "mine.yaml"
    main(["ops", "verify", "l2_norm", "--whitelist", str(whitelist)])
    torch = load_yaml(whitelist)["runs"]["verify-cpu"]["versions"]["torch"]
    whitelist.write_text(whitelist.read_text().replace(torch, "1.0.0"))
    capsys.readouterr()
    main(["ops", "list", "l2_norm", "--whitelist", str(whitelist)])
    assert "measured with 1.0.0" in capsys.readouterr().out


def test_a_wrong_kernel_is_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    wrong = Kernel("hasty", lambda x, eps=1e-6: x * 0.5)
    monkeypatch.setattr(registry, "KERNELS", {**registry.KERNELS})
    registry.KERNELS["l2_norm"] = (wrong, *registry.KERNELS["l2_norm"])
    monkeypatch.setattr("day0.runtime.verify.machine.KERNELS", registry.KERNELS)
    whitelist = tmp_path / "mine.yaml"
    assert main(["ops", "verify", "l2_norm", "--provider", "hasty", "--whitelist", str(whitelist)]) == 1
    assert "the reference gives" in capsys.readouterr().out
    assert read_whitelist(whitelist).columns["l2_norm", "hasty", "cpu"].status == "unverified"


def test_what_cannot_be_tried_is_said(capsys) -> None:
    assert main(["ops", "verify", "rms_norm", "--provider", "day0-triton", "--device", "cpu"]) == 4
    assert "needs a device that Triton compiles for" in capsys.readouterr().out
    assert main(["ops", "verify", "no_such"]) == 2
    assert main(["ops", "verify", "rms_norm", "--provider", "nobody"]) == 2
    assert main(["ops", "verify", "rms_norm", "--device", "warp"]) == 3
    assert main(["ops", "list", "--model", "recipe:kimi-k3"]) == 2


def test_sizes_of_a_model(capsys) -> None:
    argv = ["ops", "verify", "rms_norm", "gated_rms_norm", "embedding_lookup"]
    assert main([*argv, "--model", "recipe:kimi-k3", "--json"]) == 4
    document = json.loads(capsys.readouterr().out)
    assert {result["operator"] for result in document["results"]} == {"rms_norm", "gated_rms_norm"}
    (left,) = [one for one in document["left_out"] if one["asked"]]
    assert left["operator"] == "embedding_lookup"
    assert "too large" in left["why"]
    rows = [row for entry in document["entries"] for row in entry["devices"]["cpu"]["evidence"]]
    assert {row["shape"].get("width") for row in rows} >= {7168}


def test_what_a_package_was_built_for_counts_where_both_tell_it(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"torch": "2.11.0", "triton": "3.6.0+git1"}
    monkeypatch.setattr("day0.coverage.sources.version", installed.__getitem__)
    assert other_versions({"torch": "2.11.0+cu130", "triton": "3.6.0+git1"}) == ()
    assert other_versions({"torch": "2.12.0+cu130", "triton": "3.6.0+git2"}) == (
        "torch 2.11.0, measured with 2.12.0+cu130",
        "triton 3.6.0+git1, measured with 3.6.0+git2",
    )
