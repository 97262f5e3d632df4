"""One place of a model where an operator is used: what the rules of this room yield."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from day0.operators import OPERATORS

Fact = int | float | str | bool | None
Facts = tuple[tuple[str, Fact], ...]

DTYPE_WORDS: Mapping[str, str] = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"}
"""What operators call the dtypes that safetensors headers name."""


_WANTED = {name: frozenset((*contract.model_axes, *contract.attributes)) for name, contract in OPERATORS.items()}


@dataclass(frozen=True, slots=True)
class Use:
    """One place where an operator is used, with every axis and attribute of its contract."""

    operator: str
    place: str
    facts: Facts


def use(operator: str, place: str, **facts: Fact) -> Use:
    """A use with all facts given; leaving one out, or giving one too many, is a defect."""
    wanted = _WANTED[operator]
    assert facts.keys() == wanted, f"{operator} wants {sorted(wanted)}, given {sorted(facts)}"
    return Use(operator, place, tuple(facts.items()))


def linear(place: str, in_features: int, out_features: int, *, bias: bool = False) -> Use:
    """A plain product with a weight [out_features, in_features]."""
    return use("linear", place, in_features=in_features, out_features=out_features, bias=bias)
