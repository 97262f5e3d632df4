"""Scaffolded packages as somebody who fills them in uses them: they lint, run, are red, and can be made green."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from day0.coverage import Verdict, judge, load_whitelist, read_whitelist
from day0.inventory import OperatorNeed
from day0.scaffold.package import FILES, Package, packages

REPO = Path(__file__).resolve().parent.parent.parent
KERNELS = pytest.mark.parametrize("kernel", ("triton", "tilelang"))


@pytest.fixture(scope="module")
def made(verdicts: tuple[Verdict, ...]) -> tuple[Package, ...]:
    return packages("small models", verdicts, "cpu", None)


@pytest.fixture(scope="module")
def folder(made: tuple[Package, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(made, tmp_path_factory.mktemp("kernels"))


def write(made: Sequence[Package], folder: Path) -> Path:
    for package in made:
        (folder / package.operator).mkdir()
        for name, text in package.files.items():
            (folder / package.operator / name).write_text(text)
    return folder


def run_tests(folder: Path, *options: str, **environment: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder), *options]
    path = os.pathsep.join([str(REPO), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path} | environment,
    )
    return done.returncode, done.stdout


def test_one_package_per_operator_whatever_its_sizes(made: tuple[Package, ...], verdicts: tuple[Verdict, ...]) -> None:
    assert [package.operator for package in made] == [*dict.fromkeys(verdict.need.name for verdict in verdicts)]
    assert {"ssd_chunk_scan", "hca_attention", "gated_delta_chunk", "moe_router_hash"} <= {p.operator for p in made}
    assert all(tuple(package.files) == FILES for package in made)
    assert all(package.has_reference for package in made)
    linear = json.loads(next(p for p in made if p.operator == "linear").files["benchmark_shapes.json"])
    assert len({tuple(row["shapes"].items()) for row in linear["shapes"]}) > 5


def test_the_same_input_gives_the_same_files(made: tuple[Package, ...], verdicts: tuple[Verdict, ...]) -> None:
    assert packages("small models", verdicts, "cpu", None) == made


def test_files_are_formatted_and_lint(folder: Path) -> None:
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        settings = ["--config", str(REPO / "pyproject.toml")]
        done = subprocess.run([*ruff, *command, *settings, str(folder)], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_they_are_green_with_the_reference_plugged_in(folder: Path) -> None:
    """Among them the proof that zeros do not pass, for every operator."""
    status, text = run_tests(folder, DAY0_KERNEL="reference")
    assert status == 0, text


@KERNELS
def test_a_missing_library_is_a_failure(kernel: str, folder: Path) -> None:
    if find_spec(kernel):
        pytest.skip(f"{kernel} is installed")
    status, text = run_tests(folder / "relu2", DAY0_KERNEL=kernel)
    assert status == 1
    assert f"{kernel} is not installed; pip install 'day0[kernels]'" in text and "8 failed, 4 passed" in text


@pytest.mark.slow
@KERNELS
def test_stubs_launch_and_are_red(kernel: str, folder: Path) -> None:
    """Every kernel compiles and runs on this CPU; every failure is one of values."""
    pytest.importorskip(kernel)
    status, text = run_tests(folder, "-rf", "--tb=line", DAY0_KERNEL=kernel, DAY0_DEVICE="cpu")
    assert status == 1
    failures = [line for line in text.splitlines() if line.startswith("FAILED")]
    assert failures and all("test_kernel_agrees" in line for line in failures)
    reasons = [line for line in text.splitlines() if "Error" in line and not line.startswith("FAILED")]
    assert len(reasons) >= len(failures) and all("worst error" in line for line in reasons)


def test_a_kernel_in_place_of_the_stub_is_what_is_tested(made: tuple[Package, ...], tmp_path: Path) -> None:
    """Right, it is green; with one number wrong, red."""
    package = next(p for p in made if p.operator == "gated_group_rms_norm")
    right = "from .reference import gated_group_rms_norm as gated_group_rms_norm\n"
    wrong = "from . import reference\n\n\ndef gated_group_rms_norm(x, gate, weight, **options):\n" + (
        "    return 1.02 * reference.gated_group_rms_norm(x, gate, weight, **options)\n"
    )
    for name, text, status in (("right", right, 0), ("wrong", wrong, 1)):
        (tmp_path / name).mkdir()
        changed = replace(package, files={**package.files, "kernel_triton.py": text})
        assert run_tests(write([changed], tmp_path / name), DAY0_KERNEL="triton")[0] == status


def test_the_whitelist_entry_turns_a_gap_into_a_claim(made: tuple[Package, ...], verdicts: Sequence[Verdict],
                                                      tmp_path: Path) -> None:  # fmt: skip
    needs = [verdict.need for verdict in verdicts if verdict.need.name == "ssd_chunk_scan"]
    known = load_whitelist()
    without = replace(known, columns={key: column for key, column in known.columns.items() if key[0] != needs[0].name})
    before = judge(needs, without, "cpu").verdicts
    package = next(p for p in made if p.operator == "ssd_chunk_scan")
    path = tmp_path / "mine.yaml"
    path.write_text(package.files["whitelist_entry.yaml"])
    after = judge(needs, read_whitelist(path, under=without), "cpu").verdicts
    assert {verdict.status for verdict in before} == {"gap"}
    assert {(verdict.status, verdict.provider) for verdict in after} == {("unverified", "scaffold")}


def test_the_entry_declares_a_device_that_only_an_overlay_has(verdicts: Sequence[Verdict], tmp_path: Path) -> None:
    package = packages("m", verdicts[:1], "npu: 7", "/dev/npu0")[0]
    path = tmp_path / "mine.yaml"
    path.write_text(package.files["whitelist_entry.yaml"])
    whitelist = read_whitelist(path)
    assert whitelist.devices["npu: 7"].marker == "/dev/npu0"
    assert [*whitelist.columns] == [(package.operator, "scaffold", "npu: 7")]


def test_the_contract_has_the_models_numbers(made: tuple[Package, ...]) -> None:
    text = next(p for p in made if p.operator == "ssd_chunk_scan").files["contract.md"]
    for part in ("heads 8, head_dim 12, state_groups 2, state_size 16", "prefill", "bfloat16", "state_slots", "0.032"):
        assert part in text
    stub = next(p for p in made if p.operator == "ssd_chunk_scan").files["kernel_triton.py"]
    assert "(8, 12, 2, 16): (64, 16)," in stub and "state_stride_3" in stub


def test_an_operator_without_a_reference_says_so(tmp_path: Path) -> None:
    facts = {"renormalize": False, "scaling_factor": 1.0, "correction_bias": False, "num_groups": 1, "topk_groups": 1}
    need = OperatorNeed("moe_router_sparsemixer", (0,), ("prefill", "decode"), {"experts": 16, "top_k": 2}, facts,
                        "bfloat16", ("ffn.router",))  # fmt: skip
    (package,) = packages("m", [Verdict(need, "gap", None, "nobody")], "cpu", None)
    assert not package.has_reference
    status, text = run_tests(write([package], tmp_path), DAY0_KERNEL="reference")
    assert status == 1 and "NotImplementedError" in text
    assert "renormalize: bool," in package.files["reference.py"]
