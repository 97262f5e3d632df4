"""What to do after an inspection, most pressing first."""

from __future__ import annotations

from collections.abc import Sequence

from day0.coverage import Coverage
from day0.errors import Finding

_NAMED = 8


def next_steps(
    model: str,
    nearest_family: str | None,
    coverage: Coverage,
    findings: Sequence[Finding],
    *,
    has_weights: bool,
) -> tuple[str, ...]:
    """One sentence each; commands are ready to be run."""
    codes = {finding.code for finding in findings}
    steps: list[str] = []
    if "unknown-family" in codes:
        like = f", starting from {nearest_family}" if nearest_family else ""
        steps.append(f"Describe the family: a table in day0/profile/families{like}.")
    if "read-as-family" in codes:
        steps.append(f"Add the model_type to {nearest_family}'s table once its reference implementation agrees.")
    if "quantization-not-read" in codes:
        steps.append("Teach profile/read_quant.py this packing; until then sizes are those of unpacked weights.")
    if "tensors-missing" in codes:
        steps.append("Complete the checkpoint: tensors that the config asks for are not in any shard.")
    if "tensors-unexpected" in codes:
        steps.append("Explain the unexpected tensors: a part of the model is not in the profile.")
    if "operators-incomplete" in codes:
        steps.append("Add rules in day0/inventory for the parts named above: they may take operators not listed here.")
    if "config-keys-unused" in codes:
        steps.append("Find out what the unread config keys change, then read or ignore them in the family's table.")
    steps += _missing_operators(model, coverage)
    if coverage.counts["unverified"] and not coverage.lacking:
        steps.append(f"Measure the unverified operators: day0 ops verify --model {model} --whitelist mine.yaml")
    if coverage.verdicts and not coverage.lacking and not any(finding.severity == "error" for finding in findings):
        steps.append(f"day0 plan {model} --cluster h200:8")
        if has_weights:
            steps.append(f"day0 run-checklist {model}")
        else:
            steps.append(f"day0 skeleton {model} tiny-model && day0 run-checklist tiny-model")
    return tuple(dict.fromkeys(steps))


def _missing_operators(model: str, coverage: Coverage) -> list[str]:
    gaps = list(dict.fromkeys(verdict.need.name for verdict in coverage.lacking if verdict.status == "gap"))
    listed = ", ".join(gaps[:_NAMED]) + (f" and {len(gaps) - _NAMED} more" if len(gaps) > _NAMED else "")
    steps = [f"Write {listed} for {coverage.device}, with a whitelist entry each."] if gaps else []
    for verdict in coverage.lacking:
        if verdict.status == "constraint":
            steps.append(f"Extend {verdict.provider}'s {verdict.need.name}, or add another provider: {verdict.reason}.")
    if coverage.lacking:
        steps.append(f"day0 inspect {model} --scaffold kernels")
    return steps
