"""One checklist result with every status, hostile texts and data for each plot."""

from __future__ import annotations

import pytest

from day0.checklist.checklist import ChecklistResult, CheckResult, PhaseResult, Where

HOSTILE = "<script>alert('x')</script> & \"quoted\" [bold]"

ERRORS = {"embed": 0.0, "layers.0.output": 1e-6, "layers.1.output": None}
TOLERANCES = {"embed": 1e-6, "layers.0.output": 1e-5, "layers.1.output": 1e-5}


@pytest.fixture
def result() -> ChecklistResult:
    checks = (
        CheckResult("loading.headers", "Stored tensors are the expected ones", "pass", True, {"missing": 0},
                    {"missing": {"max": 0}}, seconds=0.1),
        CheckResult("loading.values", HOSTILE, "fail", True, {"wrong": 1, HOSTILE: HOSTILE},
                    {"wrong": {"max": 0}}, Where(layer=3, operator="mla", tensor="layers.3.mixer.q"), HOSTILE, HOSTILE),
    )  # fmt: skip
    numerics = (
        CheckResult("numerics.reference", "Against a reference", "warn", True,
                    {"errors": ERRORS, "tolerances": TOLERANCES}),
        CheckResult("numerics.batch", "Batched as alone", "error", True, message="the check broke"),
        CheckResult("numerics.optional", "An optional one", "fail", False, message="beyond"),
    )  # fmt: skip
    performance = (
        CheckResult("performance.load", "Under load", "pass", True, {"ttft_samples_ms": [3.0, 4.0, 9.0],
                    "tpot_samples_ms": [1.0, 1.1, 1.2], "concurrency": 4, "tokens_per_s": float("nan")}),
        CheckResult("performance.memory", "Peak memory", "skip", True, {
                    "planned_bytes": {"weights": 2**28, "cache": 2**27}, "measured_bytes": {"process": 2**28}}),
    )  # fmt: skip
    return ChecklistResult(
        verdict="not-ready",
        model={"id": f"org/{HOSTILE}", "revision": None, "architectures": ["LlamaForCausalLM"]},
        target="runtime",
        reference="transformers",
        checklist="default",
        environment={"device": "cpu", "dtype": "float32", "memory_bytes": 2**33, "versions": {"torch": "2.13"}},
        seed=0,
        phases=(
            PhaseResult("loading", "fail", checks),
            PhaseResult("multimodal", "na", (CheckResult("multimodal.order", "Order", "na", True),)),
            PhaseResult("numerics", "error", numerics),
            PhaseResult("performance", "skip", performance),
        ),
        baseline=None,
        interrupted=False,
        seconds=12.3,
    )
