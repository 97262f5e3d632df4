"""The checklist on the models of the fault table: each faulty one ends `not-ready`, in the phase that should notice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fault_table import FAULTS, Models
from hunting import Fault, load, with_config

from day0.checklist.checklist import Checklist, ChecklistRun, by_phase, verdict
from day0.checklist.probe_runtime import RuntimeTarget, tokenizer_of
from day0.checklist.probe_table import PROBES
from day0.checklist.read import read_checklist, shipped_checklists
from day0.checklist.target import CheckContext
from day0.cli.main import main
from day0.plan.settings import EngineSettings
from day0.profile.read import read_profile
from day0.runtime.engine.engine import Engine
from day0.source.resolve import resolve

CHECKS = ("loading.values", "text.resumed", "numerics.reference", "numerics.cached", "numerics.chunked")
"""What is to notice: a weight in the wrong place, an answer that goes on otherwise, another number than the
reference's, another one by another road."""
QUICK = ("llama-3.1-8b", 9)
"""By default one in so many faults of this model is tried; the others are slow."""
TRIED = tuple(
    fault for fault in FAULTS if fault.how in ("operator", "weights", "config", "engine") and " " not in fault.model
)


class FaultyTarget(RuntimeTarget):
    """The runtime with a fault of the table in every engine that it makes."""

    fault: Fault | None = None
    folder: Path

    def build(self, settings: EngineSettings, phases: dict[str, float] | None = None) -> Engine:
        engine = load(self.folder, self.fault.operators if self.fault is not None else None, max_model_len=128)
        if self.fault is not None and self.fault.edit is not None:
            self.fault.edit(engine)
        return engine


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("checked"))


def run_on(models: Models, name: str, fault: Fault | None, scratch: Path) -> tuple[str, dict[str, str]]:
    """Verdict and statuses of the checks against the trace of the sound model."""
    folder = models.checkpoint(name)
    trace = scratch.parent / f"{name}.safetensors"
    if not trace.exists():
        ids = ",".join(str((29 * place + 5) % 250) for place in range(40))
        assert main(["trace", str(folder), str(trace), "--token-ids", ids, "--dtype", "float32"]) == 0
    files = resolve(str(folder))
    profile = read_profile(files)
    tokenizer, fault_of_tokenizer = tokenizer_of(files)
    target = FaultyTarget(files, profile, EngineSettings(device="cpu"), tokenizer)
    target.fault, target.folder = fault, folder
    if fault is not None and fault.config is not None:
        target.folder = with_config(folder, fault.config, scratch / fault.id)
    context = CheckContext(files, profile, target, str(trace), tokenizer_fault=fault_of_tokenizer)
    listed = read_checklist(shipped_checklists()["default"], PROBES)
    # All are required, as `--reference FILE` makes the comparison with it.
    specs = tuple(replace(spec, required=True) for spec in listed.checks if spec.probe in CHECKS)
    run = ChecklistRun(Checklist("faults", "", specs), PROBES, context, lacks=target.lacks)
    run.run()
    ended = verdict(by_phase((spec, run.results[spec.id]) for spec in specs))
    return ended, {spec.probe: run.results[spec.id].status for spec in specs}


def some(faults: tuple[Fault, ...]) -> list[Any]:
    name, step = QUICK
    quick = [fault.id for fault in faults if fault.model == name][::step]
    return [pytest.param(fault, id=fault.id, marks=[] if fault.id in quick else pytest.mark.slow) for fault in faults]


@pytest.mark.parametrize("fault", some(TRIED))
def test_a_faulty_model_is_not_ready(fault: Fault, models: Models, tmp_path: Path) -> None:
    ended, statuses = run_on(models, fault.model, fault, tmp_path)
    assert ended == "not-ready", statuses
    if fault.step == 0 and fault.chunk is None:
        assert statuses["numerics.reference"] == "fail" or statuses["loading.values"] == "fail", statuses


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == QUICK[0] else pytest.mark.slow)
        for name in sorted({fault.model for fault in TRIED})
    ],
)
def test_the_sound_model_is_ready(name: str, models: Models, tmp_path: Path) -> None:
    ended, statuses = run_on(models, name, None, tmp_path)
    assert ended == "ready", statuses
