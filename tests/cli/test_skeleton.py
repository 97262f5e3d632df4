"""`day0 skeleton`: options, the document, exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from day0.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    status = main(["skeleton", *map(str, arguments)])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_a_tiny_one_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "recipe:qwen3-0.6b", tmp_path / "m", "--seed", "3", "--json")
    document = json.loads(out)
    assert (status, err) == (0, "")
    assert (document["schema"], document["scale"], document["seed"]) == ("day0.skeleton/1", "tiny", 3)
    assert document["family"] == "qwen3"
    assert document["bytes"] == sum(path.stat().st_size for path in (tmp_path / "m").iterdir())
    assert len(list((tmp_path / "m").glob("*.safetensors"))) == 2


def test_a_full_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "recipe:llama-3.1-8b", tmp_path / "m", "--scale", "full", "--json")
    document = json.loads(out)
    assert status == 0
    assert (document["scale"], document["shards"], document["tensors"]) == ("full", 4, 291)
    assert document["weight_bytes"] == 16_060_522_496 < document["bytes"]
    assert document["disk_bytes"] < 1 << 20
    assert "seed" not in document


def test_people_are_told_what_it_takes_and_what_is_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "recipe:qwen3-0.6b", tmp_path / "m", "--scale", "full", "--shards", "5")
    assert status == 0
    assert "310 tensors of 1,192,099,840 bytes in 5 shards" in out
    assert "next: day0 inspect" in out


def test_nothing_is_wrong_with_what_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "recipe:qwen3-30b-a3b", tmp_path / "m", "--scale", "full")
    status = main(["inspect", str(tmp_path / "m"), "--device", "cpu", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert status == 0
    assert [finding for finding in document["findings"] if finding["severity"] != "note"] == []
    assert document["weights"]["tensors"] == 18_867
    assert document["weights"]["bytes"] == document["params"]["total"] * 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--scale", "huge"], "huge"),
        (["--shards", "0"], "0"),
        (["--scale", "full", "--shards", "100000"], "99999"),
    ],
)
def test_wrong_options(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    status, out, err = run(capsys, "recipe:qwen3-0.6b", tmp_path / "m", *arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("scale", ["tiny", "full"])
def test_a_folder_of_somebody_else_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scale: str
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    status, _, err = run(capsys, "recipe:qwen3-0.6b", tmp_path, "--scale", scale, "--force")
    assert status == 2
    assert "no skeleton" in err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
