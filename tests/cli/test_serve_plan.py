from pathlib import Path

import pytest

from day0.cli.main import main


def plan(tmp_path: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> Path:
    assert main(["plan", *arguments, "--emit", "yaml"]) == 0
    path = tmp_path / "plan.yaml"
    path.write_text(capsys.readouterr().out)
    return path


def test_settings_come_from_the_plan_and_options_win(tmp_path, capsys, tiny_llama):
    model = str(tiny_llama)
    path = plan(tmp_path, capsys, model, "--cluster", "h200:1", "--context", "100", "--max-num-seqs", "5")
    assert main(["serve", model, "--plan", str(path), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "--max-model-len 100 " in out and "--max-num-seqs 5 " in out
    assert main(["serve", model, "--plan", str(path), "--dry-run", "--max-num-seqs", "3"]) == 0
    out = capsys.readouterr().out
    assert "--max-model-len 100 " in out and "--max-num-seqs 3 " in out


def test_another_engines_command_has_the_layout_and_the_address(tmp_path, capsys):
    recipe = "recipe:llama-3.1-8b"
    path = plan(tmp_path, capsys, recipe, "--cluster", "h200:2", "--engine", "vllm", "--tp", "2")
    arguments = ["serve", recipe, "--plan", str(path), "--dry-run", "--host", "10.0.0.1", "--port", "9000"]
    assert main([*arguments, "--engine", "vllm"]) == 0
    words = capsys.readouterr().out.replace("\\\n", " ").split()
    assert words[words.index("vllm") + 1] == "serve"
    for option, value in (("--tensor-parallel-size", "2"), ("--host", "10.0.0.1"), ("--port", "9000")):
        assert words[words.index(option) + 1] == value
    assert main([*arguments, "--engine", "sglang"]) == 2
    assert "the plan is for vllm" in capsys.readouterr().err
    assert main(arguments) == 2


def test_a_plan_of_several_ranks_is_not_for_this_runtime(tmp_path, capsys):
    recipe = "recipe:llama-3.1-8b"
    path = plan(tmp_path, capsys, recipe, "--cluster", "h200:2", "--engine", "vllm", "--tp", "2")
    path.write_text(path.read_text().replace("name: vllm", "name: day0"))
    assert main(["serve", recipe, "--plan", str(path), "--dry-run"]) == 2
    assert "2 ranks" in capsys.readouterr().err
