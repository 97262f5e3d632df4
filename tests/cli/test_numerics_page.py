"""The hunt of docs/numerics.md, run as the page has it: what it shows is what the tool prints, numbers aside."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from day0.cli.main import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "numerics.md"
BROKEN = "model.layers.1.self_attn.k_norm.weight"


def words(text: str) -> list[str]:
    """Lines in single spaces, measured numbers as #: those of another processor round otherwise."""
    return [re.sub(r"\d\.\d+e[+-]\d+", "#", " ".join(line.split())) for line in text.splitlines() if line.strip()]


def test_the_hunt_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    block = PAGE.read_text("utf-8").split("## A hunt")[1].split("```")[1]
    commands = [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
    shown = [line for line in block.splitlines() if not line.startswith("$ ")]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    ids = next(line.partition("=")[2] for line in commands if line.startswith("IDS="))
    for line in commands:
        if line.startswith("IDS="):
            continue
        if "broken" in line and not Path("broken").exists():
            _break()
        capsys.readouterr()
        status = main(shlex.split(line.replace("$IDS", ids))[1:])
        assert status == (1 if " compare " in line else 0), line
    printed = words(capsys.readouterr().out)
    assert printed[: len(words("\n".join(shown)))] == words("\n".join(shown))


def _break() -> None:
    """A copy of the sound model with one norm's weight larger by one."""
    shutil.copytree("sound", "broken")
    for path in Path("broken").glob("*.safetensors"):
        tensors = load_file(path)
        if BROKEN in tensors:
            tensors[BROKEN] += 1
            save_file(tensors, path, metadata={"format": "pt"})
            return
    raise AssertionError(f"no {BROKEN}")
