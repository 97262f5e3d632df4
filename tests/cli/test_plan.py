"""`day0 plan` as a user and a script see it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from day0.cli.main import main
from day0.source.data_files import load_yaml

CONTRACT = {
    "layout", "engine", "fits", "unsized", "ranks", "weights_gib_per_gpu", "kv_gib_per_gpu", "kv_tokens",
    "max_concurrency", "max_context", "estimate", "violations", "notes", "launch",
}  # fmt: skip
RANK = {
    "rank",
    "stage",
    "weights",
    "workspace",
    "activations",
    "state_pool",
    "kv_pool",
    "comm",
    "overhead",
    "free",
    "total",
}
B300 = ("plan", "recipe:kimi-k3", "--cluster", "b300:8", "--context", "65536")


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    status = main([*arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_the_document_is_that_of_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    status, document = answer(capsys, *B300, "--engine", "vllm", "--top", "2")
    assert status == 0
    assert document["schema"] == "day0.plan/1"
    assert {"model", "cluster", "workload", "searched", "plans"} <= document.keys()
    assert document["searched"] > len(document["plans"]) == 2
    plan = document["plans"][0]
    assert plan.keys() >= CONTRACT
    assert {"tp", "pp", "ep", "dp", "cp", "attention_tp"} <= plan["layout"].keys()
    assert {"ttft_ms", "tpot_ms", "tokens_per_s", "bound"} <= plan["estimate"].keys()
    assert plan["ranks"][0].keys() >= RANK
    for rank in plan["ranks"]:
        assert sum(rank[name] for name in RANK - {"rank", "stage", "total"}) == rank["total"]
    assert plan["launch"]["argv"][0][:2] == ["vllm", "serve"]


def test_kimi_k3_comes_out_as_published(capsys: pytest.CaptureFixture[str]) -> None:
    _, document = answer(capsys, *B300, "--engine", "vllm", "--tp", "8", "--ep", "8")
    plan = document["plans"][0]
    assert plan["kv_bytes_per_token"] == 27_648
    assert plan["state_bytes_per_sequence"] * 8 == 449_372_160


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ((*B300, "--tp", "8"), 0),
        (("plan", "recipe:kimi-k3", "--cluster", "h100:8"), 1),
        ((*B300, "--tp", "5"), 1),
        ((*B300, "--tp", "0"), 2),
        (("plan", "recipe:kimi-k3"), 2),
        (("plan", "recipe:kimi-k3", "--cluster", "h900:8"), 2),
        (("plan", "recipe:nothing", "--cluster", "h100:8"), 2),
        ((*B300, "--json", "--emit", "command"), 2),
        ((*B300, "--engine", "trt"), 2),
        ((*B300, "--emit", "k8s", "--engine", "day0", "--tp", "8"), 2),
        ((*B300, "--load", "nowhere.yaml"), 2),
    ],
)
def test_statuses(arguments: tuple[str, ...], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(list(arguments)) == status
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out
    if status == 2:
        assert captured.out == "" and captured.err


def test_a_model_nobody_explains_is_status_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "brand_new", "architectures": ["BrandNewForCausalLM"]}')
    status, document = answer(capsys, "plan", str(config), "--cluster", "h200:8")
    assert status == 4
    assert document["plans"][0]["fits"] is None and "brand_new" in document["plans"][0]["unsized"][0]


def test_the_report_names_layouts_lines_and_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "recipe:kimi-k3", "--cluster", "h100:8", "--engine", "sglang"]) == 1
    text = capsys.readouterr().out
    for words in ("8 x NVIDIA H100", "layouts searched", "MISSING", "Does not hold", "memory:", "->"):
        assert words in text


def test_a_plan_file_is_checked_again_and_can_be_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "plan.yaml"
    assert main([*B300, "--engine", "vllm", "--tp", "8", "--ep", "8", "--emit", "yaml"]) == 0
    saved.write_text(capsys.readouterr().out)
    assert load_yaml(saved)["layout"]["ep"] == 8
    load = ("plan", "recipe:kimi-k3", "--load", str(saved))
    status, document = answer(capsys, *load)
    assert status == 0 and document["searched"] == 1
    assert document["engine"] == "vllm" and document["workload"]["context"] == 65536
    status, document = answer(capsys, *load, "--cluster", "h100:8")
    assert status == 1 and document["plans"][0]["layout"]["ep"] == 8
    status, document = answer(capsys, *load, "--context", "4096", "--engine", "sglang")
    assert status == 0 and (document["workload"]["context"], document["engine"]) == (4096, "sglang")


def test_a_plan_file_for_another_model_is_judged_for_this_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "plan.yaml"
    assert main([*B300, "--engine", "vllm", "--tp", "8", "--ep", "8", "--emit", "yaml"]) == 0
    saved.write_text(capsys.readouterr().out)
    status, document = answer(capsys, "plan", "recipe:llama-3.1-8b", "--load", str(saved))
    assert status == 1 and "no routed experts" in document["plans"][0]["violations"][0]["message"]


@pytest.mark.parametrize(
    ("engine", "words", "said"),
    [
        ("sglang", ["--enable-ep-moe"], "use --ep-size"),
        ("vllm", ["--swap-space", "4"], "nothing took its place"),
        ("vllm", ["-tp", "4"], "spell -tp out"),
        ("vllm", ["--attention-backend", "FLASHMLAX"], "did you mean FLASHMLA"),
        ("vllm", ["--max-num-seqs=4"], "beside the plan, which decides it"),
    ],
)
def test_words_for_the_engine_that_it_does_not_take_are_refused(
    engine: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    extra = [f"--engine-arg={word}" for word in words]
    assert main([*B300, "--engine", engine, *extra, "--emit", "command"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and said in captured.err


def test_words_for_the_engine_reach_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*B300, "--engine", "vllm", "--engine-arg=--trust-remote-code", "--emit", "command"]) == 0
    assert "\n  --trust-remote-code\n" in capsys.readouterr().out


def test_an_edited_plan_file_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "plan.yaml"
    assert main([*B300, "--engine", "vllm", "--tp", "8", "--emit", "yaml"]) == 0
    text = capsys.readouterr().out
    saved.write_text(text)
    load = ("plan", "recipe:kimi-k3", "--load", str(saved))
    assert answer(capsys, *load)[1]["changes"] == []
    saved.write_text(text.replace("mem_fraction: 0.9", "mem_fraction: 0.8"))
    assert answer(capsys, *load)[1]["changes"] == ["settings.mem_fraction is 0.8 in the file and 0.9 now"]
    assert main(list(load)) == 0 and "Otherwise than the plan file says" in capsys.readouterr().out
    saved.write_text(text.replace("name: vllm", "name: trt"))
    assert main(list(load)) == 2 and "engine.name 'trt'" in capsys.readouterr().err


def test_a_command_goes_to_stdout_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = tmp_path / "plan.json"
    arguments = [*B300, "--engine", "vllm", "--tp", "8", "--emit", "command", "--output", str(written)]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert "vllm serve" in captured.out and "layout" not in captured.out.replace("# tp 8", "")
    assert json.loads(written.read_bytes())["plans"][0]["fits"] is True


def test_what_does_not_fit_is_not_launched(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "recipe:kimi-k3", "--cluster", "h100:8", "--engine", "vllm", "--emit", "command"]) == 1
    captured = capsys.readouterr()
    assert captured.out == "" and "nothing to launch" in captured.err and "GiB" in captured.err


def test_a_recipe_leaves_the_model_open_in_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "recipe:llama-3.1-8b", "--cluster", "h100:1", "--engine", "vllm", "--emit", "command"]) == 0
    assert "recipe:" not in capsys.readouterr().out


def test_the_page_stands_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "deep" / "plan.html"
    assert main([*B300, "--engine", "vllm", "--html", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("<!doctype html>") and "tp 8" in text
    assert "<script" not in text and "http" not in text


def test_no_torch_on_the_way(tmp_path: Path) -> None:
    code = (
        "import sys; from day0.cli.main import main; "
        "status = main(['plan', 'recipe:kimi-k3', '--cluster', 'b300:8', '--tp', '8']); "
        "heavy = {'torch', 'transformers', 'fastapi', 'huggingface_hub'} & set(sys.modules); "
        "sys.exit(status or (9 if heavy else 0))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


def test_a_folder_is_named_so_that_it_is_found_from_anywhere(
    capsys: pytest.CaptureFixture[str], tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny_llama.parent)
    assert main(["plan", tiny_llama.name, "--cluster", "h100:1", "--engine", "vllm", "--emit", "command"]) == 0
    assert str(tiny_llama.resolve()) in capsys.readouterr().out


def test_transformers_has_no_plan_and_what_has_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "recipe:qwen3-0.6b", "--cluster", "h100:1", "--engine", "transformers"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "no memory plan" in told and "--engine day0" in told
