"""Versions of engines, compared where their accounting or their flags have changed."""

from __future__ import annotations

import re


def version_numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version ("0.5.23rc1" -> 0, 5, 23)."""
    numbers = []
    for part in version.split("."):
        digits = re.match(r"\d+", part)
        if digits is None:
            break
        numbers.append(int(digits.group()))
    return tuple(numbers)


def is_since(version: str | None, since: tuple[int, ...]) -> bool:
    """Whether a version is `since` or newer; None stands for the newest, and so does one without numbers (nightly)."""
    numbers = version_numbers(version) if version is not None else ()
    return not numbers or numbers >= since
