"""Typed access to config.json that remembers every key it was asked for, so that nothing is consumed silently."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from day0.errors import InputError

T = TypeVar("T")

LARGEST = 2**63 - 1
"""What a JSON integer is to most readers; sizes beyond it also overflow the floats that plans are made with."""

SHOWN = 80
"""Characters of a wrong value that a message repeats."""


class _Required:
    """Marks a key without a default."""


REQUIRED = _Required()


class ConfigReader:
    """One section of a config. Sections share what was read and what was defaulted.

    Every reading method raises InputError naming file and field when the value has the wrong type, or when the key
    is missing and has no default. A JSON null counts as missing. `original` gives the file's words for keys that were
    translated, for messages and lists.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        file_name: str,
        *,
        parent: ConfigReader | None = None,
        key: str = "",
        original: Mapping[str, str] | None = None,
    ):
        self.values = values
        self.file_name = file_name
        self._original = original or {}
        self.prefix: str = f"{parent.prefix}{key}." if parent else ""
        self._read: set[str] = parent._read if parent else set()
        self._defaulted: set[str] = parent._defaulted if parent else set()

    def overlaid(self, values: Mapping[str, Any]) -> ConfigReader:
        """This section with some values replaced, as for one layer; what is read of it counts as read here."""
        copy = ConfigReader({**self.values, **values}, self.file_name, original=self._original)
        copy.prefix, copy._read, copy._defaulted = self.prefix, self._read, self._defaulted
        return copy

    def where(self, key: str) -> str:
        return f"{self.file_name}: {self._in_file(self.prefix + key)}"

    def _in_file(self, path: str) -> str:
        """A dotted path in the file's own words."""
        first, dot, rest = path.partition(".")
        return self._original.get(first, first) + dot + rest

    def has(self, key: str) -> bool:
        """Whether the key is there and not null; asking counts as reading."""
        self._read.add(self.prefix + key)
        return self.values.get(key) is not None

    def integer(
        self, key: str, default: int | _Required = REQUIRED, *, minimum: int = 1, maximum: int = LARGEST
    ) -> int:
        value = self._take(key, default)
        # JSON has one number type: 4096.0 is the integer 4096, true is not an integer.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, "an integer", value)
        if value < minimum:
            raise self._wrong(key, f"at least {minimum}", value)
        if value > maximum:
            raise self._wrong(key, f"at most {maximum}", value)
        return value

    def optional_integer(self, key: str, *, minimum: int = 1) -> int | None:
        return self.integer(key, minimum=minimum) if self.has(key) else None

    def number(self, key: str, default: float | _Required = REQUIRED) -> float:
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, "a number", value)
        return self._finite(key, value)

    def optional_number(self, key: str) -> float | None:
        return self.number(key) if self.has(key) else None

    def flag(self, key: str, default: bool | _Required = REQUIRED) -> bool:
        value = self._take(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def word(self, key: str, default: str | _Required = REQUIRED) -> str:
        value = self._take(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a string", value)
        return value

    def integers(self, key: str, default: tuple[int, ...] | _Required = REQUIRED) -> tuple[int, ...]:
        value = self._take(key, default)
        if not isinstance(value, list | tuple) or any(isinstance(v, bool) or not isinstance(v, int) for v in value):
            raise self._wrong(key, "a list of integers", value)
        if any(abs(v) > LARGEST for v in value):
            raise InputError(f"no entry may be beyond {LARGEST}", where=self.where(key))
        return tuple(value)

    def numbers(self, key: str, default: tuple[float, ...] | _Required = REQUIRED) -> tuple[float, ...]:
        value = self._take(key, default)
        if not isinstance(value, list | tuple) or any(
            isinstance(v, bool) or not isinstance(v, int | float) for v in value
        ):
            raise self._wrong(key, "a list of numbers", value)
        return tuple(self._finite(key, v) for v in value)

    def words(self, key: str, default: tuple[str, ...] | _Required = REQUIRED) -> tuple[str, ...]:
        value = self._take(key, default)
        if not isinstance(value, list | tuple) or any(not isinstance(v, str) for v in value):
            raise self._wrong(key, "a list of strings", value)
        return tuple(value)

    def choice(self, key: str, known: Mapping[str, T], default: str | _Required = REQUIRED) -> T:
        """The entry of `known` that the config's word names; an unknown word is an error that lists the known."""
        word = self.word(key, default)
        if word not in known:
            raise InputError(
                f"{word!r} is not known here", where=self.where(key), hint=f"known: {', '.join(sorted(known))}"
            )
        return known[word]

    def section(self, key: str) -> ConfigReader | None:
        """The mapping under `key` as a reader of its own, None where it is missing or null."""
        if not self.has(key):
            return None
        value = self.values[key]
        if not isinstance(value, Mapping):
            raise self._wrong(key, "an object", value)
        return ConfigReader(value, self.file_name, parent=self, key=key)

    def required_section(self, key: str) -> ConfigReader:
        section = self.section(key)
        if section is None:
            raise InputError("is missing", where=self.where(key))
        return section

    def ignore(self, *keys: str) -> None:
        """Declare keys that are known to have no effect on inference."""
        self._read.update(self.prefix + key for key in keys)

    def ignore_all(self) -> None:
        """Declare the whole section as read by somebody who keeps it as it is."""
        self.ignore(*self.values)

    @property
    def defaulted(self) -> tuple[str, ...]:
        return tuple(sorted(map(self._in_file, self._defaulted)))

    def unused(self) -> tuple[str, ...]:
        """Dotted paths of keys that nobody asked for; a section nobody opened is one entry."""
        return tuple(sorted(map(self._in_file, self._unused_below(self.values, self.prefix))))

    def _unused_below(self, values: Mapping[str, Any], prefix: str) -> list[str]:
        unused: list[str] = []
        for key, value in values.items():
            path = prefix + key
            if path not in self._read:
                unused.append(path)
            elif isinstance(value, Mapping) and any(read.startswith(path + ".") for read in self._read):
                unused += self._unused_below(value, path + ".")
        return unused

    def _take(self, key: str, default: Any) -> Any:
        self._read.add(self.prefix + key)
        value = self.values.get(key)
        if value is not None:
            return value
        if isinstance(default, _Required):
            raise InputError("is missing", where=self.where(key))
        self._defaulted.add(self.prefix + key)
        return default

    def _finite(self, key: str, value: float) -> float:
        try:
            number = float(value)
        except OverflowError:  # an integer that no float can hold
            number = math.inf
        if not math.isfinite(number):
            raise InputError(f"must be finite, got {number}", where=self.where(key))
        return number

    def _wrong(self, key: str, wanted: str, value: Any) -> InputError:
        return InputError(f"must be {wanted}, got {repr(value)[:SHOWN]}", where=self.where(key))
