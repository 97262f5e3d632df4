"""`day0 trace --baseline` and `day0 compare` against it: small, keyed, and refused where it says nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from day0.cli.main import main

IDS = ",".join(str((29 * place + 5) % 300) for place in range(20))
COMMON = ["--token-ids", IDS, "--max-new-tokens", "2", "--device", "cpu"]


@pytest.fixture(scope="module")
def kept(tiny_qwen3_moe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """BASE, a baseline, NOW, a trace of the same, and SAMPLED, a baseline with a few channels."""
    folder = tmp_path_factory.mktemp("baselines")
    for name, options in (("base", ["--baseline"]), ("sampled", ["--baseline", "--sample", "8"]), ("now", [])):
        assert main(["trace", str(tiny_qwen3_moe), str(folder / name), *COMMON, *options]) == 0
    return folder


def compared(one: Path, two: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict, str]:
    capsys.readouterr()
    status = main(["compare", str(one), str(two), "--json"])
    said = capsys.readouterr()
    return status, json.loads(said.out) if said.out else {}, said.err


def rewritten(kept: Path, tmp_path: Path, name: str, **facts: object) -> Path:
    """A copy of a trace that says something else of itself; None takes the fact out."""
    for ending in (".safetensors", ".jsonl"):
        (tmp_path / f"copy{ending}").write_bytes((kept / f"{name}{ending}").read_bytes())
    said = json.loads((kept / f"{name}.json").read_text()) | facts
    (tmp_path / "copy.json").write_text(json.dumps({key: value for key, value in said.items() if value is not None}))
    return tmp_path / "copy"


@pytest.mark.parametrize("name", ["base", "sampled"])
def test_the_same_software_gives_the_baseline_again(kept: Path, capsys, name: str) -> None:
    status, found, _ = compared(kept / name, kept / "now", capsys)
    assert (status, found["verdict"], found["remarks"]) == (0, "equal", [])
    assert len(found["nodes"]) > 50
    size = (kept / f"{name}.safetensors").stat().st_size
    assert size < (kept / "now.safetensors").stat().st_size


def test_an_upgrade_is_told_and_judged(kept: Path, tmp_path: Path, capsys) -> None:
    versions = json.loads((kept / "base.json").read_text())["versions"] | {"torch": "1.0"}
    status, found, _ = compared(rewritten(kept, tmp_path, "base", versions=versions), kept / "now", capsys)
    assert status == 0
    assert any(remark.startswith("since the baseline: torch 1.0 -> ") for remark in found["remarks"])


def test_a_changed_tensor_never_passes(kept: Path, tmp_path: Path, capsys) -> None:
    """Other sizes deviate; another hash with the same sizes stays open."""
    for factor, expected in ((2.0, 1), (1.0, 4)):
        changed = rewritten(kept, tmp_path, "base")
        lines = [json.loads(line) for line in (kept / "base.jsonl").read_text().splitlines()]
        for line in lines:
            if line["name"] == "layers.1.mixer_in":
                line["statistics"] |= {"sha256": "0" * 64, "rms": line["statistics"]["rms"] * factor}
        (tmp_path / "copy.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        status, found, _ = compared(changed, kept / "now", capsys)
        assert status == expected
        if factor != 1.0:
            assert found["first"]["tensor"] == "layers.1.mixer_in"


@pytest.mark.parametrize(
    ("facts", "status", "words"),
    [
        ({"model_sha256": "0" * 64}, 2, "another model"),
        ({"processor": "riscv64"}, 2, "another processor"),
        ({"ran_on": "NVIDIA H200"}, 2, "another device"),
        ({"settings": {"dtype": "bfloat16", "stream": False}}, 2, "another setting dtype"),
        ({"baseline": 0}, 2, "version 0"),
        ({"ran_on": None}, 4, "does not say its device"),
    ],
)
def test_what_says_nothing_here_is_refused(kept: Path, tmp_path: Path, capsys, facts, status: int, words: str) -> None:
    found, _, said = compared(rewritten(kept, tmp_path, "base", **facts), kept / "now", capsys)
    assert found == status
    assert words in " ".join(said.split())


def test_a_baseline_is_of_a_run_on_its_own(tiny_qwen3_moe: Path, kept: Path, tmp_path: Path, capsys) -> None:
    arguments = [
        "trace",
        str(tiny_qwen3_moe),
        str(tmp_path / "x"),
        *COMMON,
        "--baseline",
        "--replay",
        str(kept / "now"),
    ]
    assert main(arguments) == 2
