"""`day0 inspect` with --scaffold, --trace and --html."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from day0.cli.main import main

HYBRID: dict[str, Any] = {
    "model_type": "nemotron_h", "hidden_size": 64, "hybrid_override_pattern": "ME*-", "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 24, "vocab_size": 100, "mamba_num_heads": 8, "mamba_head_dim": 12,
    "n_groups": 2, "ssm_state_size": 16, "conv_kernel": 4, "intermediate_size": 96, "n_routed_experts": 6,
    "num_experts_per_tok": 2, "moe_intermediate_size": 40, "moe_shared_expert_intermediate_size": 56,
    "moe_latent_size": 32, "dtype": "bfloat16",
}  # fmt: skip
LACKING: dict[str, Any] = {
    "model_type": "zaya", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100, "num_experts": 6, "moe_intermediate_size": 40,
    "router_hidden_size": 20, "cca_time0": 2, "cca_time1": 2, "dtype": "bfloat16",
}  # fmt: skip
"""A model with operators that nothing here runs on a CPU."""
HOSTILE = "<script>alert('x')</script>"


@pytest.fixture
def hybrid(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(HYBRID))
    return path


@pytest.fixture
def lacking_model(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LACKING))
    return path


@pytest.fixture
def inspect(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    def run(model: str | Path, *options: str | Path) -> tuple[int, dict[str, Any]]:
        status = main(["inspect", str(model), "--json", "--device", "cpu", *map(str, options)])
        return status, json.loads(capsys.readouterr().out)

    return run


class TestScaffold:
    def test_a_package_per_gap(self, inspect, lacking_model: Path, tmp_path: Path) -> None:
        status, document = inspect(lacking_model, "--scaffold", tmp_path / "out")
        lacking = {need["name"] for need in document["operators"] if need["status"] in ("gap", "constraint")}
        assert status == 1 and "query_key_mean" in lacking
        scaffold = document["scaffold"]
        assert {*scaffold["operators"]} == lacking and scaffold["without_reference"] == []
        written = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.*")}
        assert {*scaffold["files"]} == written and len(written) == 9 * len(lacking)

    def test_files_that_were_edited_are_not_touched(self, inspect, lacking_model: Path, tmp_path: Path, capsys) -> None:
        out = tmp_path / "out"
        options = ("--scaffold", out, "--operator", "token_delay", "--operator", "rms_norm")
        inspect(lacking_model, *options)
        assert inspect(lacking_model, *options)[0] == 1  # the same again
        stub = out / "token_delay" / "kernel_triton.py"
        stub.write_text("mine")
        (out / "rms_norm" / "reference.py").unlink()
        assert main(["inspect", str(lacking_model), *map(str, options)]) == 2
        captured = capsys.readouterr()
        assert str(stub) in captured.err and "--force" in captured.err and captured.out == ""
        assert stub.read_text() == "mine" and not (out / "rms_norm" / "reference.py").exists()
        inspect(lacking_model, *options, "--force")
        assert "triton.jit" in stub.read_text() and (out / "rms_norm" / "reference.py").exists()

    def test_an_operator_that_is_not_lacking_can_be_named(self, inspect, tiny_llama: Path, tmp_path: Path) -> None:
        status, document = inspect(tiny_llama, "--scaffold", tmp_path / "out", "--operator", "rope")
        assert (status, document["scaffold"]["operators"]) == (0, ["rope"])

    def test_where_nothing_lacks_nothing_is_written(self, inspect, tiny_llama: Path, tmp_path: Path) -> None:
        status, document = inspect(tiny_llama, "--scaffold", tmp_path / "out")
        assert (status, document["scaffold"]["operators"]) == (0, [])
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        ("options", "says"),
        (
            (["--operator", "rope"], "--operator: means something only with --scaffold"),
            (["--force"], "--force: means something only with --scaffold"),
            (["--scaffold", "{}/out", "--operator", "ropes"], "it needs rope"),
            (["--scaffold", "{}/file", "--operator", "rope"], "/file"),
        ),
    )
    def test_wrong_requests_are_refused(
        self, capsys, tiny_llama: Path, tmp_path: Path, options: list[str], says: str
    ) -> None:
        (tmp_path / "file").write_text("")
        assert main(["inspect", str(tiny_llama), *(option.format(tmp_path) for option in options)]) == 2
        captured = capsys.readouterr()
        assert says in captured.err and captured.out == ""

    def test_the_gaps_name_the_command(self, inspect, lacking_model: Path) -> None:
        assert f"day0 inspect {lacking_model} --scaffold kernels" in inspect(lacking_model)[1]["next"]


class TestTrace:
    def test_kinds_of_layers_are_those_of_the_profile(self, inspect, hybrid: Path) -> None:
        trace = inspect(hybrid, "--trace")[1]["trace"]
        assert trace["definition"] == "NemotronHForCausalLM"
        kinds = [part["kind"] for part in trace["parts"]]
        assert kinds == ["mamba2 + none", "none + moe", "gqa + none", "none + dense", "outside the layers"]
        names = {operator["name"] for operator in trace["parts"][3]["operators"]}
        assert {"aten.mm", "aten.relu"} <= names and "aten.topk" not in names

    def test_it_is_there_for_people_too(self, capsys, tiny_llama: Path) -> None:
        assert main(["inspect", str(tiny_llama), "--device", "cpu", "--trace"]) == 0
        captured = capsys.readouterr()
        assert "Upstream definition: LlamaForCausalLM" in captured.out and "mm 7" in captured.out
        assert captured.err == ""

    def test_a_definition_that_is_not_there_cannot_be_traced(self, capsys, tiny_kimi_k3: Path) -> None:
        assert main(["inspect", str(tiny_kimi_k3), "--trace"]) == 4
        assert "no definition of model type 'kimi_k3'" in capsys.readouterr().err


class _Page(HTMLParser):
    """Tags, attributes and text of a page; complains of tags that are closed and not open."""

    VOID = ("meta", "br", "link", "img")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data: str) -> None:
        self.text += data


class TestPage:
    def page(self, model: str | Path, path: Path, *options: str) -> _Page:
        main(["inspect", str(model), "--json", "--device", "cpu", "--html", str(path), *options])
        return _Page(path.read_text())

    def test_it_tells_all_of_the_document(self, inspect, hybrid: Path, tmp_path: Path) -> None:
        options = ("--diff", "recipe:kimi-k3", "--trace", "--scaffold", str(tmp_path / "out"))
        _, document = inspect(hybrid, *options)
        page = self.page(hybrid, tmp_path / "page.html", *options)
        assert page.open == []
        for need in document["operators"]:
            assert need["name"] in page.text and need["reason"] in page.text
        told = [finding["message"] for finding in document["findings"]] + document["defaulted_config_keys"]
        told += [field["field"] for field in document["diff"]["fields"]] + document["next"]
        told += [operator["name"] for operator in document["trace"]["operators"]]
        for text in [*told, "mamba2", "Against recipe:kimi-k3", "NemotronHForCausalLM"]:
            assert text in page.text, text

    def test_nothing_is_fetched_and_nothing_runs(self, hybrid: Path, tmp_path: Path) -> None:
        page = self.page(hybrid, tmp_path / "page.html")
        assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.tags}
        references = [
            value for _, attributes in page.tags for name, value in attributes.items() if name in ("href", "src")
        ]
        assert references and all(str(value).startswith("#") for value in references)
        anchors = {attributes.get("id") for _, attributes in page.tags}
        assert {str(value)[1:] for value in references} <= anchors
        assert not re.search(r"url\(|@import", (tmp_path / "page.html").read_text())

    def test_what_a_model_says_is_escaped(self, tmp_path: Path) -> None:
        folder = tmp_path / "model"
        folder.mkdir()
        config = HYBRID | {HOSTILE: 1, "architectures": [HOSTILE]}
        (folder / "config.json").write_text(json.dumps(config))
        page = self.page(folder / "config.json", tmp_path / "page.html")
        assert HOSTILE in page.text and "script" not in {tag for tag, _ in page.tags}

    @pytest.mark.parametrize("config", ({"model_type": "zzz"}, {"model_type": HOSTILE, "hidden_size": 8}))
    def test_a_model_that_nobody_knows_has_a_page(self, config: dict[str, Any], tmp_path: Path) -> None:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        page = self.page(path, tmp_path / "page.html")
        assert "unknown family" in page.text and "No operator is known" in page.text and page.open == []

    def test_torch_stays_out(self, hybrid: Path, tmp_path: Path) -> None:
        program = (
            "import sys; from day0.cli.main import main;"
            "main(['inspect', sys.argv[1], '--html', sys.argv[2] + '/p.html', '--scaffold', sys.argv[2] + '/out']);"
            "sys.exit(str({'torch', 'transformers', 'numpy'} & sys.modules.keys() or 0).strip('0') or 0)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, str(hybrid), str(tmp_path)], check=False, capture_output=True
        )
        assert done.returncode == 0, done.stderr
