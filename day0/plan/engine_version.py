"""Versions of engines, compared where their accounting or their flags have changed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from day0.errors import InputError

_NEWEST = ("nightly", "main", "latest", "dev")
_DATE = re.compile(r"20\d\d-\d\d(?:-\d\d)?")


@dataclass(frozen=True, slots=True)
class Release:
    """A release that changed something: its numbers, and its date for builds that are only known by theirs."""

    numbers: tuple[int, ...]
    date: str


def version_numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version ("0.5.23rc1" -> 0, 5, 23)."""
    numbers = []
    for part in version.split("."):
        digits = re.match(r"[0-9]{1,18}", part)  # as many digits as a date and time have; more is no version
        if digits is None:
            break
        numbers.append(int(digits.group()))
    return tuple(numbers)


def checked_version(version: str | None) -> str | None:
    """A version as it was given; raises InputError where it has no number and is no name for the newest."""
    if version is None or any(letter.isdigit() for letter in version) or version.lower() in _NEWEST:
        return version
    raise InputError(
        f"{version!r} is no version", where="--engine-version", hint=f"for example 0.26.0, or {', '.join(_NEWEST)}"
    )


def is_since(version: str | None, since: Release) -> bool:
    """Whether a version is `since` or newer.

    A build named by its date ("nightly 2025-11") is compared by that, a month without a day as its last. None stands
    for the newest, and so does a name without numbers ("nightly").
    """
    if version is None:
        return True
    date = _DATE.search(version)
    if date is not None:
        day = date.group()
        return (day if len(day) > len("2025-11") else f"{day}-31") >= since.date
    numbers = version_numbers(version)
    return not numbers or numbers >= since.numbers
