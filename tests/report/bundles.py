"""A bundle of a small run with every kind of outcome, made by the real run over probes that answer at once."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

import day0
from day0.checklist.checklist import (
    Checklist,
    ChecklistResult,
    ChecklistRun,
    Measured,
    NotChecked,
    Outcome,
    Probe,
    Where,
    verdict,
)
from day0.checklist.evidence import evidence_of
from day0.checklist.read import read_checklist
from day0.report.bundle import MANIFEST, bundle_files, manifest_of

LIST = """
title: Every outcome once
phases:
  loading:
    - {id: loading.fine, title: Fine, probe: fine, parameters: {tensors: 3}, limits: {wrong: {max: 0}}}
    - {id: loading.absent, title: Absent, probe: absent}
  numerics:
    - {id: numerics.errors, title: Errors, probe: errors, limits: {error_over_tolerance: {max: 1.0}}}
    - {id: numerics.lost, title: Lost, probe: lost, required: false, limits: {ratio: {max: 4}}}
  stability:
    - {id: stability.boom, title: Boom, probe: boom, required: false}
  performance:
    - id: performance.load
      title: Load
      probe: load
      limits: {ttft_ms: {warn_max: 3, max_of_baseline: 1.5}, tpot_ms: {max: 2}}
"""
BEFORE = {"performance.load": {"ttft_ms": 4.0, "tpot_ms": 1.0}}


def fine(context: object, *, tensors: int = 2) -> Outcome:
    return Measured(tensors, {"wrong": 0, "equal": True, "which": ["a", "b"]}, Where(layer=1), hint="not shown")


def absent(context: object) -> Outcome:
    return NotChecked("na", "the model has no such part", "give it one")


def errors(context: object) -> Outcome:
    values = {"errors": {"a": 1e-6, "b": 4e-6}, "tolerances": {"a": 2e-6, "b": 5e-6}}
    return Measured(2, {"error_over_tolerance": 0.8, "worst_error": 4e-6, **values})


def lost(context: object) -> Outcome:
    return Measured(1, {"ratio": math.inf, "other": math.nan})


def boom(context: object) -> Outcome:
    raise RuntimeError("boom")


def load(context: object) -> Outcome:
    samples = {"ttft_samples_ms": (3.0, 4.0, 9.0), "tpot_samples_ms": (1.0, 1.0, 1.5)}
    return Measured(3, {"ttft_ms": 4.0, "ttft_p95_ms": 9.0, "tpot_ms": 1.0, "tpot_p95_ms": 1.5, **samples})


PROBES = {function.__name__: Probe(function) for function in (fine, absent, errors, lost, boom, load)}


def small_result(folder: Path) -> tuple[ChecklistRun, ChecklistResult]:
    """The run over the list above, against a baseline, and its result."""
    (folder / "every.yaml").write_text(LIST)
    checklist: Checklist = read_checklist(folder / "every.yaml", PROBES)
    run = ChecklistRun(checklist, PROBES, "context", lacks=lambda need: None, before=BEFORE)
    phases = run.run()
    result = ChecklistResult(
        verdict=verdict(phases),
        model={"id": "tiny", "revision": None, "architectures": ["TinyForCausalLM"]},
        target="runtime",
        reference="transformers",
        checklist="every",
        environment={"device": "cpu", "memory_bytes": 2**33, "versions": {"day0": day0.__version__}},
        seed=7,
        phases=phases,
        baseline={"file": "base.json", "key": {"model": "tiny"}},
        interrupted=False,
        seconds=1.5,
        limits=("slower than it could be",),
        command=("day0", "run-checklist", "tiny"),
        inputs={"config.json": {"sha256": "ab" * 32, "bytes": 9, "hashed": 9}},
        coverage={"device": "cpu", "operators": [{"name": "mla", "status": "verified", "provider": "day0"}]},
        memory={"seconds": [0.0, 1.0], "bytes": [2**20, 2**21]},
    )
    return run, result


def write_bundle(folder: Path) -> Path:
    """The bundle of the small run."""
    folder.mkdir(parents=True, exist_ok=True)
    run, result = small_result(folder)
    document = msgspec.json.format(msgspec.json.encode(result), indent=2)
    baseline = msgspec.json.encode({"schema": "day0.baseline/1", "key": {"model": "tiny"}, "measured": BEFORE})
    for name, data in bundle_files(document, result, evidence_of(run, result), LIST.encode(), baseline).items():
        (folder / name).write_bytes(data)
    return folder


def write_manifest(folder: Path) -> None:
    """The manifest anew, as somebody would write it who has altered a file and knows about hashes."""
    names = [path for path in folder.iterdir() if path.name not in (MANIFEST, "every.yaml")]
    (folder / MANIFEST).write_bytes(manifest_of({path.name: path.read_bytes() for path in names}))
