"""`day0 run-checklist`: statuses, documents and reports, on sound models and broken ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file, save_file

from day0.checklist.checklist import ChecklistRun
from day0.cli.main import main
from day0.cli.run_checklist import Asked, _report_folder, run
from day0.plan.settings import EngineSettings
from day0.source.data_files import load_yaml

LISTS = Path(__file__).resolve().parents[2] / "checklists"

Run = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def run_quick(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run_quick(folder, *options)`: exit status and JSON document of a quick run."""

    def call(model: Path | str, *options: str) -> tuple[int, dict[str, Any]]:
        folder = str(tmp_path / "report")
        arguments = ["run-checklist", str(model), "--device", "cpu", "--report-dir", folder, "--json"]
        if "--checklist" not in options:
            arguments += ["--checklist", "quick"]
        status = main([*arguments, *options])
        text = capsys.readouterr().out
        return status, json.loads(text) if text else {}

    return call


def checks_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {check["id"]: check for phase in document["phases"] for check in phase["checks"]}


@pytest.fixture
def broken(tiny_llama: Path, tmp_path: Path) -> Callable[[Callable[[dict[str, Any]], None]], Path]:
    """`broken(change)`: a copy of the tiny llama with one shard's tensors changed."""

    def make(change: Callable[[dict[str, Any]], None]) -> Path:
        folder = tmp_path / "broken"
        shutil.copytree(tiny_llama, folder)
        shard = sorted(folder.glob("*.safetensors"))[0]
        tensors = load_file(shard)
        change(tensors)
        save_file(tensors, shard)
        index = folder / "model.safetensors.index.json"
        document = json.loads(index.read_text())
        names = document["weight_map"]
        document["weight_map"] = {n: s for n, s in names.items() if s != shard.name or n in tensors}
        index.write_text(json.dumps(document))
        return folder

    return make


def test_a_sound_model_is_ready_and_the_document_is_the_contracts(run_quick: Run, tiny_llama: Path) -> None:
    status, document = run_quick(tiny_llama)
    assert (status, document["verdict"]) == (0, "ready")
    assert document["schema"] == "day0.checklist/1"
    wanted = {
        "schema",
        "verdict",
        "model",
        "target",
        "reference",
        "environment",
        "seed",
        "phases",
        "baseline",
        "seconds",
    }
    assert wanted <= set(document)
    assert [phase["name"] for phase in document["phases"]] == [
        "loading", "startup", "text", "multimodal", "numerics", "stability", "performance",
    ]  # fmt: skip
    for check in checks_of(document).values():
        fields = {"id", "title", "status", "measured", "limit", "where", "message", "hint", "seconds"}
        assert fields <= set(check)
    assert document["environment"]["device"] == "cpu"
    assert document["model"]["family"] == "llama"


def test_all_four_reports_are_written(run_quick: Run, tiny_llama: Path, tmp_path: Path) -> None:
    _, document = run_quick(tiny_llama, "--junit", str(tmp_path / "ci" / "j.xml"), "--output", str(tmp_path / "o.json"))
    folder = tmp_path / "report"
    assert json.loads((folder / "checklist.json").read_text()) == document
    assert json.loads((tmp_path / "o.json").read_text()) == document
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert (folder / "junit.xml").read_bytes() == (tmp_path / "ci" / "j.xml").read_bytes()


def test_text_goes_to_stdout_and_the_place_of_the_report_to_stderr(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run-checklist", str(tiny_llama), "--checklist", "quick", "--device", "cpu"]) == 0
    printed = capsys.readouterr()
    lines = printed.out.strip().split("\n")
    assert lines[0].startswith("READY") and lines[-1].startswith("READY")
    (folder,) = (tmp_path / "day0-report").iterdir()
    assert folder.name.startswith(f"{tiny_llama.name}-")
    assert f"report: day0-report/{folder.name}/report.html" in printed.err


def test_a_missing_tensor_is_not_ready_and_named(run_quick: Run, broken: Any) -> None:
    lost: list[str] = []

    def drop(tensors: dict[str, Any]) -> None:
        lost.append(next(name for name in tensors if ".1." in name))
        del tensors[lost[0]]

    status, document = run_quick(broken(drop))
    checks = checks_of(document)
    assert (status, document["verdict"]) == (1, "not-ready")
    assert checks["loading.headers"]["status"] == "fail"
    assert checks["loading.headers"]["where"] == {"layer": 1, "operator": None, "tensor": lost[0], "length": None}
    assert checks["loading.parameters"]["status"] == "fail"
    assert checks["text.greedy"]["status"] == "skip" and "did not start" in checks["text.greedy"]["message"]


def test_a_tensor_that_is_not_finite_is_named(run_quick: Run, broken: Any) -> None:
    names: list[str] = []

    def poison(tensors: dict[str, Any]) -> None:
        names.append(next(name for name in tensors if ".0." in name))
        tensors[names[0]].view(-1)[0] = float("nan")

    status, document = run_quick(broken(poison))
    check = checks_of(document)["loading.parameters"]
    assert status == 1 and check["status"] == "fail"
    assert names[0] in check["message"] or check["where"]["tensor"].startswith("layers.0.")


def test_one_phase_alone_is_incomplete(run_quick: Run, tiny_llama: Path) -> None:
    status, document = run_quick(tiny_llama, "--phase", "loading", "--phase", "startup")
    assert (status, document["verdict"]) == (4, "incomplete")
    assert [phase["status"] for phase in document["phases"]][:3] == ["pass", "pass", "skip"]


def test_what_was_not_checked_is_listed(tiny_llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--checklist", "quick", "--phase", "loading", "--device", "cpu", "--report-dir", str(tmp_path), "--json"]
    assert main(["run-checklist", str(tiny_llama), *options]) == 4
    assert "not checked: startup.device, " in capsys.readouterr().err


@pytest.fixture
def reference_alone(tmp_path: Path) -> Path:
    """The default checklist's check against a reference, without what else its phase takes its time for."""
    document = load_yaml(LISTS / "default.yaml")
    checks = [check for check in document["phases"]["numerics"] if check["id"] == "numerics.reference"]
    path = tmp_path / "reference.yaml"
    path.write_text(yaml.safe_dump({**document, "phases": {"numerics": checks}}))
    return path


def test_a_reference_asked_for_is_required(run_quick: Run, tiny_llama: Path, reference_alone: Path) -> None:
    options = ("--checklist", str(reference_alone), "--reference")
    _, document = run_quick(tiny_llama, *options, "transformers")
    check = checks_of(document)["numerics.reference"]
    assert (check["required"], check["status"]) == (True, "pass")
    _, document = run_quick(tiny_llama, *options, "runtime")
    check = checks_of(document)["numerics.reference"]
    assert (check["required"], check["status"], document["reference"]) == (False, "skip", "runtime")


def test_a_stored_trace_is_a_reference(run_quick: Run, tiny_llama: Path, tmp_path: Path, reference_alone: Path) -> None:
    from day0.profile.read import read_profile
    from day0.runtime.upstream.reference import load_reference, reference_trace
    from day0.source.resolve import resolve

    ids, files = list(range(5, 25)), resolve(str(tiny_llama))
    tensors = reference_trace(load_reference(files, read_profile(files)), ids)
    import torch

    save_file({"input_ids": torch.tensor(ids), **tensors}, tmp_path / "trace.safetensors")
    options = ("--checklist", str(reference_alone), "--reference")
    _, document = run_quick(tiny_llama, *options, str(tmp_path / "trace.safetensors"))
    assert checks_of(document)["numerics.reference"]["status"] == "pass"
    tensors["layers.1.mixer_out"][3] *= 1.01
    save_file({"input_ids": torch.tensor(ids), **tensors}, tmp_path / "trace.safetensors")
    _, document = run_quick(tiny_llama, *options, str(tmp_path / "trace.safetensors"))
    check = checks_of(document)["numerics.reference"]
    assert check["status"] == "fail"
    assert check["where"] == {"layer": 1, "operator": "gqa", "tensor": "layers.1.mixer_out", "length": 3}


def test_a_server_is_checked_over_http(run_quick: Run, tiny_llama: Path, served: str) -> None:
    status, document = run_quick(tiny_llama, "--target", served, "--checklist", "endpoint")
    assert (status, document["verdict"]) == (0, "ready"), [
        (check["id"], check["message"]) for check in checks_of(document).values() if check["status"] != "pass"
    ]
    assert document["target"] == served


def test_a_server_that_is_not_there_is_not_ready(run_quick: Run, tiny_llama: Path) -> None:
    status, document = run_quick(tiny_llama, "--target", "http://127.0.0.1:9", "--checklist", "endpoint")
    assert (status, document["verdict"]) == (1, "not-ready")
    assert checks_of(document)["startup.health"]["status"] == "fail"


def test_a_baseline_is_kept_and_held_against(run_quick: Run, tiny_llama: Path, tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    assert run_quick(tiny_llama, "--save-baseline", str(path))[0] == 0
    stored = json.loads(path.read_text())
    assert stored["measured"]["performance.single"]["tpot_ms"] > 0
    for figures in stored["measured"].values():
        for name in ("ttft_ms", "tpot_ms"):
            if name in figures:
                figures[name] /= 1000
    path.write_text(json.dumps(stored))
    status, document = run_quick(tiny_llama, "--baseline", str(path))
    check = checks_of(document)["performance.single"]
    assert (status, check["status"]) == (1, "fail")
    assert check["limit"]["ttft_ms"]["max"] == pytest.approx(1.5 * check["limit"]["ttft_ms"]["baseline"])
    assert document["baseline"]["file"] == str(path)


def test_a_baseline_of_another_model_is_refused(
    run_quick: Run, tiny_llama: Path, tiny_qwen3_moe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "base.json"
    run_quick(tiny_llama, "--save-baseline", str(path))
    arguments = ["run-checklist", str(tiny_qwen3_moe), "--checklist", "quick", "--baseline", str(path)]
    assert main(arguments) == 2
    assert "another model" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--report-dir", "--junit", "--output", "--save-baseline"])
def test_a_place_that_cannot_be_written_is_said_before_the_first_check(
    tiny_llama: Path, tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ChecklistRun, "run", lambda self: pytest.fail("a check ran"))
    (tmp_path / "file").write_text("")
    options = ["--report-dir", str(tmp_path / "report"), option, str(tmp_path / "file" / "below")]
    assert main(["run-checklist", str(tiny_llama), "--checklist", "quick", *options]) == 2
    captured = capsys.readouterr()
    assert "cannot be written" in captured.err and captured.out == ""


def test_a_disk_that_fills_up_does_not_cost_the_verdict(
    tiny_llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--report-dir", str(tmp_path / "report"), "--junit", "/dev/full", "--json"]
    assert main(["run-checklist", str(tiny_llama), "--checklist", "quick", *options]) == 3
    captured = capsys.readouterr()
    assert json.loads(captured.out)["verdict"] == "ready" and "No space left" in captured.err


def test_runs_of_the_same_second_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda form: "20260901-120000")
    first = _report_folder("org/model")
    first.mkdir(parents=True)
    assert first.name == "model-20260901-120000" and _report_folder("org/model") != first


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--phase", "lodaing"], 2, "no phase 'lodaing'"),
        (["--checklist", "nightly"], 2, "no checklist 'nightly'"),
        (["--target", "somewhere"], 2, "neither `runtime` nor a URL"),
        (["--reference", "absent.safetensors"], 2, "no such file"),
        (["--nproc", "2", "--stream"], 2, "--stream: ranks hold their shares"),
        (["--stream", "--target", "http://127.0.0.1:9"], 2, "--stream: the server behind a URL"),
        (["--device", "nonsense"], 3, "nonsense"),
        (["--dtype", "float3"], 2, "float3"),
    ],
)
def test_wrong_options_are_said_without_a_traceback(
    tiny_llama: Path, capsys: pytest.CaptureFixture[str], options: list[str], status: int, words: str
) -> None:
    assert main(["run-checklist", str(tiny_llama), *options]) == status
    printed = capsys.readouterr()
    assert words in printed.err and "Traceback" not in printed.err and printed.out == ""


def test_a_source_without_weights_is_wrong_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run-checklist", "recipe:llama-3.1-8b"]) == 2
    assert "weights" in capsys.readouterr().err


def test_a_model_nobody_knows_cannot_be_judged(run_quick: Run, tiny_llama: Path, tmp_path: Path) -> None:
    folder = tmp_path / "unknown"
    shutil.copytree(tiny_llama, folder)
    # Without sizes it is no known family under another name either.
    config = {"model_type": "nobody", "architectures": ["NobodyForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config))
    status, document = run_quick(folder)
    assert (status, document["verdict"]) == (4, "incomplete")


def test_interrupted_runs_leave_a_report(
    run_quick: Run, tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = ChecklistRun._measure

    def interrupt(self: ChecklistRun, spec: Any) -> Any:
        if spec.phase == "text":
            raise KeyboardInterrupt
        return check(self, spec)

    monkeypatch.setattr(ChecklistRun, "_measure", interrupt)
    status, document = run_quick(tiny_llama)
    assert status == 130 and document["interrupted"] and document["verdict"] == "incomplete"
    assert (tmp_path / "report" / "report.html").exists()


@pytest.mark.parametrize("fixture", ["tiny_qwen3", "tiny_mixtral", "tiny_qwen3_moe", "tiny_kimi_k3"])
def test_the_other_families_are_ready(run_quick: Run, request: pytest.FixtureRequest, fixture: str) -> None:
    status, document = run_quick(request.getfixturevalue(fixture))
    assert status == 0, [
        check for check in checks_of(document).values() if check["status"] in ("fail", "error", "skip")
    ]


def test_every_number_of_the_document_is_a_number(tiny_llama: Path) -> None:
    asked = Asked(str(tiny_llama), "quick", ("loading",), "runtime", None, EngineSettings(device="cpu"), None, 0, None)
    ran = run(asked, None)
    assert ran.result.seconds > 0 and all(isinstance(value, str) for value in ran.key.values())
