"""All of it on this machine: what the device's stack lacks, then each provider's trials, and what they come to."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from day0.errors import InputError
from day0.operators import OPERATORS
from day0.operators.contract import VARIABLE_AXES
from day0.runtime.device.contract import Breach, breaches
from day0.runtime.device.order import CLAUSES
from day0.runtime.engine.memory import choose_device
from day0.runtime.ops.registry import KERNELS, REFERENCE, Kernel, accelerator_name, kernel_faults
from day0.runtime.verify.case import Cases
from day0.runtime.verify.cases import INLINE, PREPARE, laid_out
from day0.runtime.verify.draw import Draw
from day0.runtime.verify.evidence import DTYPES, Tried, tried
from day0.runtime.verify.roofline import Roofline, bytes_of, has_clock, measure_roofline, seconds, share_of_bandwidth
from day0.runtime.verify.sizes import CASES
from day0.runtime.verify.trial import Function, copied, moved

MOST_ELEMENTS = 1 << 27
"""Of one tensor: its numbers in float64 are a gibibyte on the host, and several of them are held at once."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The device under trial: its name as torch and as its driver tell it, what it breaks, how fast it is."""

    device: torch.device
    shown: str
    breaches: tuple[Breach, ...]
    roofline: Roofline | None
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Subject:
    """A provider's kernel of an operator, in the dtypes it serves; `unmet` says why it serves none."""

    operator: str
    provider: str
    function: Function
    module: str
    served: tuple[str, ...]
    unmet: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What came of a subject's trials; `raised` is the error that ended them, `share` the largest of a bandwidth."""

    subject: Subject
    cases: Cases
    trials: tuple[Tried, ...]
    raised: str = ""
    share: float | None = None


def meet(device_name: str) -> Machine:
    """The machine's device, through every clause of the device contract; EnvironmentFault where there is none."""
    device = choose_device(device_name)
    versions = {"python": platform.python_version(), "torch": str(torch.__version__), "numpy": np.__version__}
    roofline = measure_roofline(device) if has_clock(device) else None
    return Machine(device, accelerator_name(device), tuple(breaches(device, CLAUSES)), roofline, versions)


def subjects(names: Sequence[str], device: torch.device, provider: str = "") -> Iterator[Subject]:
    """The kernels of these operators, or those of one provider; InputError where no operator has them."""
    found = [one for name in names for one in _of(name, device) if provider in ("", one.provider)]
    if not found:
        known = sorted({one.provider for name in OPERATORS for one in _of(name, device)})
        raise InputError(f"{provider!r} has none of them", where="--provider", hint=f"known: {', '.join(known)}")
    yield from found


def _of(name: str, device: torch.device) -> Iterator[Subject]:
    for kernel in KERNELS.get(name, ()):
        yield _subject(name, kernel, device)
    if name in INLINE:
        yield Subject(name, REFERENCE, INLINE[name], INLINE[name].__module__ or "", DTYPES)


def _subject(name: str, kernel: Kernel, device: torch.device) -> Subject:
    reasons = {dtype: kernel.unmet(device, getattr(torch, dtype)) for dtype in DTYPES}
    served = tuple(dtype for dtype, reason in reasons.items() if reason is None)
    function = kernel.function if kernel.layout is None else laid_out(kernel)
    unmet = "" if served else next(reason for reason in reasons.values() if reason)
    return Subject(name, kernel.provider, function, kernel.module, served, unmet)


def sizes_of_need(operator: str, shapes: Mapping[str, int], attributes: Mapping[str, Any]) -> tuple[Cases | None, str]:
    """Trials at a model's sizes, what a step decides being as in the standard trials; or why they cannot be run."""
    if operator not in CASES:
        return None, "nothing is known to try it on"
    standard = CASES[operator]
    rows = []
    for row in standard.sizes:
        free = {axis: size for axis, size in row.items() if axis in VARIABLE_AXES}
        sizes = {**free, **shapes}
        if sizes not in rows and _largest(operator, sizes) <= MOST_ELEMENTS:
            rows.append(sizes)
    if not rows:
        return None, f"a tensor of more than {MOST_ELEMENTS:,} numbers, too large for a trial in float64"
    lacking = [axis for axis in standard.sizes[0] if axis not in rows[0]]
    if lacking:
        return None, f"the model does not say {', '.join(lacking)}"
    return Cases(standard.spans, rows[:2], (dict(attributes),), standard.constraints), ""


def _largest(operator: str, sizes: Mapping[str, Any]) -> int:
    counts = []
    for tensor in (*OPERATORS[operator].inputs, *OPERATORS[operator].outputs):
        count = 1
        for axis in tensor.axes:
            count *= int(sizes.get(axis) or 1)
        counts.append(count)
    return max(counts)


def examine(subject: Subject, machine: Machine, cases: Cases, on_trial: Callable[[Tried], None]) -> Found:
    """All trials of a subject; an error that a kernel raises ends them and is told."""
    trials: list[Tried] = []
    share = None
    try:
        for one in tried(subject.operator, subject.function, machine.device, subject.served, cases, on_trial):
            trials.append(one)
        if machine.roofline is not None and trials:
            share = max(_share(subject, one, machine, machine.roofline) for one in trials)
    except kernel_faults() as fault:
        return Found(subject, cases, tuple(trials), f"{type(fault).__name__}: {str(fault).strip()[:300]}")
    return Found(subject, cases, tuple(trials), share=share)


def _share(subject: Subject, one: Tried, machine: Machine, roofline: Roofline) -> float:
    """Of the last dtype that was tried, the one that models run in; its inputs and outputs count once."""
    dtype = [*one.outcomes][-1]
    arguments, expected = PREPARE[subject.operator](Draw(getattr(torch, dtype), 0), one.facts)
    there = moved(copied(arguments), machine.device)
    width = torch.empty((), dtype=getattr(torch, dtype)).element_size()
    nbytes = bytes_of(arguments) + sum(array.size for array in expected) * width
    took = seconds(lambda: subject.function(*there), machine.device)
    return share_of_bandwidth(nbytes, took, roofline)
