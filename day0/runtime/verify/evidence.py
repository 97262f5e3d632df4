"""What a provider's trials come to: one row a size for the whitelist, or why the provider is not verified."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from day0.operators import OPERATORS
from day0.runtime.ops.registry import KERNELS, REFERENCE
from day0.runtime.verify.case import PLAIN, Cases
from day0.runtime.verify.cases import INLINE
from day0.runtime.verify.sizes import CASES
from day0.runtime.verify.trial import Function, Outcome, attempt
from day0.source.data_files import OneLine

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class Tried:
    """An operator at one set of sizes and attributes, in every dtype."""

    facts: Mapping[str, Any]
    outcomes: Mapping[str, Outcome]

    @property
    def faults(self) -> list[str]:
        return [
            f"{dtype} {dict(self.facts)}: {fault}" for dtype, found in self.outcomes.items() for fault in found.faults
        ]


def reference_of(operator: str) -> Function:
    """The plain definition, wherever the runtime has it."""
    if operator in INLINE:
        return INLINE[operator]
    return next(kernel.function for kernel in KERNELS[operator] if kernel.provider == REFERENCE)


def tried(
    name: str,
    function: Function,
    device: torch.device,
    served: Sequence[str] = DTYPES,
    cases: Cases | None = None,
    on_trial: Callable[[Tried], None] = lambda one: None,
) -> Iterator[Tried]:
    """Every trial of one provider, at the standard sizes where no `cases` are given."""
    operator, cases, reference = OPERATORS[name], cases or CASES[name], reference_of(name)
    dtypes = served if operator.follows_model_dtype else ("float32",)
    for attributes in cases.attributes:
        for sizes in cases.sizes:
            facts = {**sizes, **attributes}
            plain = facts.get("weight_format") == PLAIN  # the name of the dtype is the name of the format
            for each in [(dtype,) for dtype in dtypes] if plain else [dtypes]:
                own = {**facts, "weight_format": each[0]} if plain else facts
                outcomes = {
                    dtype: attempt(name, function, reference, own, dtype, device, properties=dtype == dtypes[0])
                    for dtype in each
                }
                one = Tried(own, outcomes)
                on_trial(one)
                yield one


def column(
    name: str,
    trials: Collection[Tried],
    run: str,
    cases: Cases | None = None,
    sources: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """What the whitelist says of one provider on one device; verified where no trial has a fault."""
    cases = cases or CASES[name]
    failures = [fault for one in trials for fault in one.faults]
    if failures or not trials:
        reason = f"{len(failures)} trials fail, the first: {failures[0]}" if failures else "nothing was tried"
        return {"status": "unverified", "reason": reason}
    rows = [_row(name, one, run) for one in trials]
    found: dict[str, Any] = {"status": "verified", "spans": list(cases.spans)}
    if sources:
        found["sources"] = dict(sources)
    if cases.constraints:
        found["constraints"] = {fact: dict(bound) for fact, bound in cases.constraints.items()}
    return found | {"evidence": rows}


def _row(name: str, one: Tried, run: str) -> dict[str, Any]:
    operator = OPERATORS[name]
    agreements = {dtype: found.agreement for dtype, found in one.outcomes.items()}
    row = {
        "shape": {axis: one.facts[axis] for axis in one.facts if axis in operator.axes},
        "attributes": {attribute: one.facts[attribute] for attribute in operator.attributes},
        "worst_error": {dtype: float(f"{agreement.worst:.2e}") for dtype, agreement in agreements.items()},
        "ratio": {dtype: float(f"{agreement.ratio:.2e}") for dtype, agreement in agreements.items()},
        "noise": {dtype: float(f"{found.noise:.2e}") for dtype, found in one.outcomes.items()},
        "run": run,
    }
    return OneLine({key: value for key, value in row.items() if value != {}})
