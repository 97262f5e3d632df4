"""Whole runs from the command line to the bundle: models of each kind end `ready`, and their evidence holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from day0.cli.main import main

ROOT = Path(__file__).parents[2]
SMOLLM2 = ROOT / "models" / "smollm2-135m-instruct"
SCHEMA = json.loads((ROOT / "docs" / "schema" / "day0.checklist-1.json").read_text())
KINDS = {
    "kimi-k3": "gated linear attention, latent attention, experts in four bits, images",
    "deepseek-v3.2": "sparse attention by an indexer",
    "qwen3-next-80b-a3b": "the gated delta rule",
}
"""Recipes by what they have that others lack."""


def checked(model: Path, name: str, folder: Path, *options: str) -> tuple[int, dict[str, object]]:
    """Exit status and document of a run whose evidence is judged again."""
    report = folder / "report"
    status = main(
        ["run-checklist", str(model), "--checklist", name, "--device", "cpu", "--report-dir", str(report), *options]
    )
    document = json.loads((report / "checklist.json").read_text())
    jsonschema.validate(document, SCHEMA)
    assert main(["report", "verify", str(report)]) == 0
    return status, document


@pytest.mark.parametrize("recipe", ["deepseek-v3.2", "qwen3-next-80b-a3b"])  # Kimi K3: test_run_checklist
def test_quick_runs_end_ready(recipe: str, tiny: Callable[[str], Path], tmp_path: Path) -> None:
    status, document = checked(tiny(recipe), "quick", tmp_path)
    assert (status, document["verdict"]) == (0, "ready")


@pytest.mark.slow
@pytest.mark.parametrize("recipe", KINDS)
def test_default_runs_end_ready(recipe: str, tiny: Callable[[str], Path], tmp_path: Path) -> None:
    status, document = checked(tiny(recipe), "default", tmp_path)
    assert (status, document["verdict"]) == (0, "ready")
    phases = {phase["name"]: phase["status"] for phase in document["phases"]}  # type: ignore[attr-defined]
    assert (phases["multimodal"] == "pass") == (recipe == "kimi-k3")


@pytest.mark.slow
@pytest.mark.skipif(not SMOLLM2.is_dir(), reason="no SmolLM2 here: scripts/fetch_smollm2.py gets it")
def test_a_released_model_ends_ready(tmp_path: Path) -> None:
    status, document = checked(SMOLLM2, "default", tmp_path)
    assert (status, document["verdict"]) == (0, "ready")
