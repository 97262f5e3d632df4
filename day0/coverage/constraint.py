"""What a provider demands of a need and of the device, and how a broken demand is worded."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from day0.inventory import Fact, OperatorNeed

RATIOS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "group": (("heads", "kv_heads"), ("value_heads", "key_heads")),
    "group_experts": (("experts", "num_groups"),),
}
"""Facts that follow from others: query heads per key/value head, experts per group; by numerator and denominator."""


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the file; a key that nobody would read is refused."""


class Bound(Strict, frozen=True, kw_only=True):
    """What a provider demands of one fact of a need."""

    min: int | float | None = None
    max: int | float | None = None
    multiple_of: int | None = None
    one_of: tuple[Fact, ...] | None = None

    def refusal(self, name: str, value: Fact) -> str | None:
        """Why `value` is not allowed, None where it is."""
        if self.one_of is not None and value not in self.one_of:
            return f"{name} {value} is not one of {', '.join(map(str, self.one_of))}"
        if self.min is None and self.max is None and self.multiple_of is None:
            return None
        if value is None or isinstance(value, str):
            return f"{name} is {value}, a number is needed"
        if self.min is not None and value < self.min:
            return f"{name} {value} is below {self.min}"
        if self.max is not None and value > self.max:
            return f"{name} {value} is above {self.max}"
        if self.multiple_of is not None and value % self.multiple_of:
            return f"{name} {value} is not a multiple of {self.multiple_of}"
        return None


def ratios(axes: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the facts that follow from these."""
    return tuple(name for name, pairs in RATIOS.items() if any(set(pair) <= set(axes) for pair in pairs))


def all_facts(need: OperatorNeed, device: Mapping[str, Fact]) -> dict[str, Fact]:
    """Everything that a constraint may be put on: the need's facts, what follows from them, the device's."""
    facts = {**need.facts, **device}
    for name, pairs in RATIOS.items():
        for above, below in pairs:
            numerator, denominator = facts.get(above), facts.get(below)
            if isinstance(numerator, int) and isinstance(denominator, int) and denominator:
                facts[name] = numerator // denominator
    return facts
