"""How a model that no family table claims resembles those that are known."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Likeness:
    """The nearest known family, and how near it is.

    `read` says that the profile was read with that family's table, because all it asks for is there; `whole` that
    nothing is left over either. `agrees` and `differs` are sentences for people. `others` fit as well.
    """

    family: str
    read: bool
    whole: bool
    agrees: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
