"""One trial of a kernel: against float64 on the same numbers, in units of what the reference itself rounds away.

Memory that a kernel takes and does not write is NaN meanwhile, so that what is left out shows.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from day0.operators import OPERATORS, Agreement, Operator, output_tolerance
from day0.runtime.verify.cases import PREPARE
from day0.runtime.verify.draw import Draw
from day0.runtime.verify.properties import broken_properties

Function = Callable[..., Any]

NOISE_ALLOWED = 16.0
"""Times the reference's own noise that a kernel's error may be; both come from rounding in the same dtype."""
ENOUGH = 256
"""Elements of an output from which on its noise is no accident."""

WRITTEN: Mapping[str, int] = {"paged_cache_write": 2, "mxfp4_dequantize": 2}
"""Operators that write to an argument by their definition, and its place."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a trial found: `faults` is empty where the kernel is right. `agreement` is that of the worst output.

    `noise`: the norm of the kernel's error over that of the reference run in the same dtype on the host.
    """

    faults: tuple[str, ...]
    agreement: Agreement
    noise: float


def attempt(
    operator: str,
    kernel: Function,
    reference: Function,
    facts: Mapping[str, Any],
    dtype: str,
    device: torch.device,
    *,
    properties: bool = True,
) -> Outcome:
    """Run a kernel at sizes and attributes `facts`: twice, and again for `properties` that follow from its definition,
    which hold or not whatever the dtype.
    """
    contract = OPERATORS[operator]
    arguments, expected = PREPARE[operator](Draw(getattr(torch, dtype), _seed(operator, facts, dtype)), facts)
    given = moved(arguments, device)
    with _poisoned_memory():
        outputs = outputs_of(kernel, given)
        again = outputs_of(kernel, moved(arguments, device))
    faults = _changed(operator, given, arguments)
    if any(not _same(one, other) for one, other in zip(outputs, again, strict=True)):
        faults.append("the same inputs gave two results")
    plain = outputs_of(reference, copied(arguments))
    agreement, wrong = _agreement(contract, outputs, expected, plain, dtype)
    faults += wrong
    noise = _noise(outputs, plain, expected, dtype)
    if noise > NOISE_ALLOWED:
        faults.append(f"{noise:.3g} times the reference's own noise")
    if properties and not faults:
        tolerances = [output_tolerance(contract, output, dtype) for output in contract.outputs]

        def run(changed: Sequence[Any]) -> tuple[torch.Tensor, ...]:
            with _poisoned_memory():
                return outputs_of(kernel, moved(changed, device))

        faults += broken_properties(operator, facts, arguments, outputs, run, tolerances)
    return Outcome(tuple(faults), agreement, noise)


def outputs_of(function: Function, arguments: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """Outputs on the host, as many as there are."""
    found = function(*arguments)
    return tuple(output.cpu() for output in (found if isinstance(found, (tuple, list)) else (found,)))


def moved(argument: Any, device: torch.device) -> Any:
    """A copy on a device of tensors, in lists and tuples too; whatever else, as it is. Strides are kept."""
    if isinstance(argument, (list, tuple)):
        return type(argument)(moved(one, device) for one in argument) if _plain(argument) else argument
    return argument.to(device, copy=True) if isinstance(argument, torch.Tensor) else argument


def copied(arguments: Any) -> Any:
    return moved(arguments, torch.device("cpu"))


def _plain(argument: Any) -> bool:
    return type(argument) in (list, tuple)


def _changed(operator: str, given: Sequence[Any], before: Sequence[Any]) -> list[str]:
    """Arguments that are not what they were."""
    return [
        f"argument {place} was changed"
        for place, (one, other) in enumerate(zip(given, before, strict=True))
        if place != WRITTEN.get(operator) and not _same(one, other)
    ]


def _agreement(
    contract: Operator,
    outputs: Sequence[torch.Tensor],
    expected: Sequence[NDArray[Any]],
    plain: Sequence[torch.Tensor],
    dtype: str,
) -> tuple[Agreement, list[str]]:
    """How the worst output agrees with float64, and what is wrong with any of them."""
    faults, agreements = [], []
    for output, found, wanted, same in zip(contract.outputs, outputs, expected, plain, strict=True):
        tolerance = output_tolerance(contract, output, dtype)
        agreement = tolerance.check(numbers(found), wanted)
        agreements.append(agreement)
        if not agreement.equal:
            faults.append(f"{output.name}: {agreement.message}")
        if found.dtype != same.dtype:
            faults.append(f"{output.name}: {found.dtype}, the reference gives {same.dtype}")
    return max(agreements, key=lambda one: (not one.equal, one.ratio)), faults


def numbers(output: torch.Tensor) -> NDArray[Any]:
    """Integers as they are, all else in float64."""
    return output.numpy() if output.dtype == torch.int64 else output.double().numpy()


def _noise(
    outputs: Sequence[torch.Tensor], plain: Sequence[torch.Tensor], expected: Sequence[NDArray[Any]], dtype: str
) -> float:
    """The largest, over outputs of some size, of error over the reference's; a quarter of a rounding counts as none."""
    least, worst = torch.finfo(getattr(torch, dtype)).eps / 4, 0.0
    for found, same, wanted in zip(outputs, plain, expected, strict=True):
        if found.shape == wanted.shape and wanted.dtype == np.float64 and wanted.size >= ENOUGH:
            size = float(np.linalg.norm(wanted)) or 1.0
            ours, theirs = (float(np.linalg.norm(numbers(one) - wanted)) / size for one in (found, same))
            worst = max(worst, ours / max(theirs, least) if math.isfinite(ours) else math.inf)
    return worst


def _same(one: Any, other: Any) -> bool:
    """Equal to the bit, NaN being NaN."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        here = one.cpu()
        return here.shape == other.shape and bool(((here == other) | ((here != here) & (other != other))).all())
    if _plain(one) and _plain(other):
        return all(_same(a, b) for a, b in zip(one, other, strict=True))
    return True  # numbers, words and records cannot be changed, or are no numbers at all


@contextmanager
def _poisoned_memory() -> Iterator[None]:
    """What torch hands out is filled with NaN, which it does where algorithms are asked to be deterministic."""
    kept = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(kept[0], warn_only=kept[1])


def _seed(operator: str, facts: Mapping[str, Any], dtype: str) -> int:
    return zlib.crc32(repr((operator, sorted(facts.items()), dtype)).encode())
