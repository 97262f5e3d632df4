"""docs/inspect.md shows what the command really prints, takes and reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from day0.cli.main import main
from day0.coverage import judge, read_whitelist
from day0.inventory import OperatorNeed

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "inspect.md").read_text()


def test_the_example_is_real_output(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["inspect", "recipe:kimi-k3", "--device", "cpu"]) == 0
    printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.rstrip().splitlines())
    assert f"$ day0 inspect recipe:kimi-k3\n{printed}\n```" in PAGE


def test_the_scaffold_is_real(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hybrid").mkdir()
    (tmp_path / "hybrid" / "config.json").write_text(PAGE.split("```json\n")[1].split("```")[0])
    command = "inspect hybrid/config.json --device cpu --scaffold kernels"
    assert main(command.split()) == 1
    printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.rstrip().splitlines())
    assert f"$ day0 {command}\n{printed}\n```" in PAGE
    for path in (tmp_path / "kernels" / "query_key_mean").glob("*[a-z].*"):
        assert f"`{path.name}`" in PAGE or path.name == "__init__.py"


def test_the_comparison_is_real(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    command = "inspect recipe:qwen3-30b-a3b --device cpu --diff recipe:llama-3.1-8b"
    assert main(command.split()) == 0
    printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.rstrip().splitlines())
    part = printed[printed.index("Against") : printed.index("\n\nNext")]
    assert f"$ day0 {command}\n...\n{part}\n```" in PAGE


def test_every_option_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--help"]) == 0
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert options <= set(re.findall(r"--[a-z-]+", PAGE))


def test_the_whitelist_of_the_page_is_accepted_and_means_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.write_text(PAGE.split("```yaml\n")[1].split("```")[0])
    whitelist = read_whitelist(path)

    def status(head_dim: int, heads: int, window: int | None = None) -> str:
        shapes, attributes = {"heads": heads, "kv_heads": 4, "head_dim": head_dim}, {"scale": 0.1, "window": window}
        need = OperatorNeed("paged_gqa_attention", (0,), ("decode",), shapes, attributes, "bfloat16", ("mixer",))
        return judge([need], whitelist, "npu").verdicts[0].status

    assert status(128, 32) == "verified"
    assert status(64, 32) == "unverified"
    assert status(128, 65) == "unverified"
    assert status(120, 32) == "constraint"
    assert status(128, 32, window=7) == "constraint"
