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


def test_a_plan_of_several_ranks_is_served_on_one_host(tmp_path, capsys):
    recipe = "recipe:llama-3.1-8b"
    path = plan(tmp_path, capsys, recipe, "--cluster", "h200:2", "--tp", "2")
    assert main(["serve", recipe, "--plan", str(path), "--dry-run"]) == 0
    assert "--tp 2 --ep 1 --pp 1 --dp 1" in capsys.readouterr().out
    path = plan(tmp_path, capsys, recipe, "--cluster", "h200:1x2", "--pp", "2")
    assert main(["serve", recipe, "--plan", str(path), "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "2 ranks" in said and "one host" in said


def test_a_plan_is_made_again_before_it_is_served(tmp_path, capsys, tiny_llama):
    model = str(tiny_llama)
    path = plan(tmp_path, capsys, model, "--cluster", "h200:1", "--context", "100", "--max-num-seqs", "5")
    text = path.read_text()
    path.write_text(text.replace("max_batched_tokens: 2048", "max_batched_tokens: 99"))
    assert main(["serve", model, "--plan", str(path), "--dry-run"]) == 0
    captured = capsys.readouterr()
    assert "settings.max_batched_tokens is 99 in the file and 2048 now" in captured.err
    assert "--max-num-batched-tokens 2048" in captured.out and "--dtype bfloat16" in captured.out
    pool = next(line.split()[1] for line in text.splitlines() if line.startswith("  kv_pool: "))
    assert f"--kv-cache-bytes {pool}" in captured.out
    path.write_text(text.replace("memory_bytes: 150109880320", "memory_bytes: 1000"))
    assert main(["serve", model, "--plan", str(path), "--dry-run"]) == 2
    err = capsys.readouterr().err
    assert "does not fit this model" in err and "where recipes/clusters/h200.yaml has 150109880320" in err


def test_transformers_is_started_without_a_plan_and_by_its_own_parser(capsys, tiny_llama):
    arguments = ["serve", str(tiny_llama), "--engine", "transformers", "--dry-run", "--host", "::1", "--port", "9"]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"transformers serve {tiny_llama}") and "--port 9" in captured.out
    assert "checked by the parser of transformers" in captured.err


def test_what_serve_prints_of_a_plan_is_what_plan_emits(tmp_path, capsys):
    recipe, cluster = "recipe:llama-3.1-8b", ["--cluster", "h200:2x2", "--engine", "sglang", "--tp", "2", "--pp", "2"]
    path = plan(tmp_path, capsys, recipe, *cluster)
    for form in ("command", "k8s", "slurm"):
        assert main(["plan", recipe, *cluster, "--emit", form]) == 0
        emitted = capsys.readouterr().out
        served = ["serve", recipe, "--engine", "sglang", "--plan", str(path), "--host", "0.0.0.0", "--dry-run"]
        assert main([*served, "--emit", form]) == 0
        assert capsys.readouterr().out == emitted


def test_options_and_parsers_go_along_with_a_plan(tmp_path, capsys):
    recipe = "recipe:llama-3.1-8b"
    path = plan(tmp_path, capsys, recipe, "--cluster", "h200:1", "--engine", "vllm")
    arguments = ["serve", recipe, "--engine", "vllm", "--plan", str(path), "--dry-run"]
    assert main([*arguments, "--tool-call-parser", "llama3_json", "--reasoning-parser", "qwen3"]) == 0
    words = capsys.readouterr().out.replace("\\\n", " ").split()
    assert words.count("--tool-call-parser") == 1 and words[words.index("--tool-call-parser") + 1] == "llama3_json"
    assert "--enable-auto-tool-choice" in words and words[words.index("--reasoning-parser") + 1] == "qwen3"
    assert words[words.index("--shutdown-timeout") + 1] == "60"
    assert main([*arguments, "--max-model-len", "100"]) == 2
    assert "--max-model-len is set beside the plan" in capsys.readouterr().err
