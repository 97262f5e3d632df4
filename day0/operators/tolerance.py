"""How exact an operator must be: tolerances that follow the reference's own size, and the check that applies them.

The only place where tolerances are defined; tests and checks both take them from here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Failure = Literal["shape", "dtype", "nonfinite", "value"]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How an output compares with its reference; `failure` is None when they agree, else the first thing wrong.

    `worst` is the largest difference over the reference's size. `ratio` is difference over allowance where that is
    most exceeded (at most 1 when they agree), and `index` is where.
    """

    failure: Failure | None
    message: str
    worst: float = math.nan
    ratio: float = math.nan
    index: tuple[int, ...] | None = None

    @property
    def equal(self) -> bool:
        return self.failure is None


@dataclass(frozen=True, slots=True)
class Tolerance:
    """An element may differ by `share` * size + `rtol` * |reference|; size is the reference's root mean square.

    Judging by the reference's own size keeps the check sharp at every scale: an output of zeros always fails. Both
    numbers zero means equal exactly; a reference of zeros allows nothing but zeros.
    """

    rtol: float
    share: float

    def __post_init__(self) -> None:
        assert self.share > 0.0 or self.rtol == 0.0, "zeros of the reference need an absolute allowance"

    def atol(self, size: float) -> float:
        """The absolute part of the allowance for a reference of this root mean square."""
        return self.share * size

    def check(self, actual: Any, reference: Any, *, dtype: str | None = None) -> Agreement:
        """Shape, dtype, finiteness, then values of two torch or numpy arrays; the reference in float32 or wider.

        `dtype` is what the output must have, e.g. "bfloat16"; None leaves it unasked. Integers are compared as
        int64, so that differences do not wrap.
        """
        shape, wanted = tuple(actual.shape), tuple(reference.shape)
        if shape != wanted:
            return Agreement("shape", f"shape {list(shape)}, reference {list(wanted)}")
        name = str(actual.dtype).removeprefix("torch.")
        if dtype is not None and name != dtype:
            return Agreement("dtype", f"dtype {name}, wanted {dtype}")
        if math.prod(shape) == 0:
            return Agreement(None, "both empty", 0.0, 0.0)
        for label, array in (("output", actual), ("reference", reference)):
            # NaN compares false as well.
            outside = ~(abs(array) < math.inf)
            if bool(outside.any()):
                index = _unravel(int((outside * 1).reshape(-1).argmax()), shape)
                return Agreement("nonfinite", f"{label} is not finite at {list(index)}", index=index)
        return self._compare(actual, reference)

    def _compare(self, actual: Any, reference: Any) -> Agreement:
        difference = abs(actual - reference)
        size, largest = root_mean_square(reference), float(difference.max())
        worst = largest / size if size else (math.inf if largest else 0.0)
        atol = self.atol(size)
        # Without an absolute part there is nothing to divide by, and only equality will do.
        excess = difference / (abs(reference) * self.rtol + atol) if atol else difference
        index = _unravel(int(excess.reshape(-1).argmax()), tuple(reference.shape))
        ratio = float(excess[index]) if atol else (math.inf if largest else 0.0)
        text = f"worst error {worst:.2e} of the reference's size"
        if ratio <= 1.0:
            return Agreement(None, text, worst, ratio, index)
        return Agreement("value", f"{text}; {ratio:.3g} x the allowance at {list(index)}", worst, ratio, index)


def root_mean_square(array: Any) -> float:
    """Root mean square of a torch or numpy array, safe from overflow in the squares."""
    largest = float(abs(array).max())
    if largest == 0.0:
        return 0.0
    scaled = array / largest
    return largest * math.sqrt(float((scaled * scaled).mean()))


def _unravel(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        position, rest = divmod(position, size)
        index.append(rest)
    return tuple(reversed(index))


EXACT: Mapping[str, Tolerance] = {name: Tolerance(0.0, 0.0) for name in ("float32", "bfloat16", "float16", "int64")}
"""Copies, choices and decoded bits."""
POINTWISE: Mapping[str, Tolerance] = {
    "float32": Tolerance(rtol=2e-6, share=5e-6),
    "bfloat16": Tolerance(rtol=8e-3, share=2e-3),
    "float16": Tolerance(rtol=1e-3, share=2.5e-4),
}
"""A few roundings per element: two units in the last place, and some room where terms cancel."""
REDUCTION: Mapping[str, Tolerance] = {
    "float32": Tolerance(rtol=1e-5, share=5e-6),
    "bfloat16": Tolerance(rtol=8e-3, share=4e-3),
    "float16": Tolerance(rtol=1e-3, share=5e-4),
}
"""Sums kept in float32 and rounded once."""
MATMUL: Mapping[str, Tolerance] = {
    "float32": Tolerance(rtol=1e-5, share=1e-5),
    "bfloat16": Tolerance(rtol=1.6e-2, share=1.6e-2),
    "float16": Tolerance(rtol=2e-3, share=2e-3),
}
"""Products over up to 10^5 terms, in whatever order a library takes them."""
CHAIN: Mapping[str, Tolerance] = {
    "float32": Tolerance(rtol=1e-5, share=1e-5),
    "bfloat16": Tolerance(rtol=3.2e-2, share=3.2e-2),
    "float16": Tolerance(rtol=4e-3, share=4e-3),
}
"""A product of products, rounded to the model's dtype between them."""
RECURRENCE: Mapping[str, Tolerance] = {
    "float32": Tolerance(rtol=1e-4, share=5e-5),
    "bfloat16": Tolerance(rtol=3.2e-2, share=3.2e-2),
    "float16": Tolerance(rtol=4e-3, share=4e-3),
}
"""Errors that build up along a sequence or a coordinate."""
