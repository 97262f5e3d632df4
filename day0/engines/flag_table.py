"""Flags that each version of an engine takes, as recorded under recipes/engines/; stale ones and their successors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from day0.plan.engine_version import version_numbers
from day0.source.data_files import data_path, load_yaml

NOTHING = "nothing took its place"
"""How the record begins what it says of a flag without a successor."""


@dataclass(frozen=True, slots=True)
class FlagTable:
    """`flags` maps a flag to a mark ("x" or ".") for each of `versions`; `replaced` says what came after some.

    `values` are the words that some flags of the newest version take. `read` is the month in which the newest version
    was last held against its own parser.
    """

    engine: str
    versions: tuple[str, ...]
    flags: Mapping[str, str]
    replaced: Mapping[str, str]
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    read: str = ""

    def record(self, version: str | None) -> str:
        """Which record a command line for a version is held against, in words."""
        return f"the flags of {self.engine} {self.versions[self._places(version)[-1]]}, recorded {self.read}"

    def complaints(self, words: Sequence[str], version: str | None) -> tuple[str, ...]:
        """What is wrong with the flags of a command line on a version; None is the newest recorded.

        Between two recorded versions a flag of either is let through: it came or went somewhere in between. What a
        flag may say is known of the newest version only.
        """
        places = self._places(version)
        found: dict[str, None] = {}
        for name, value in _flags_and_values(words):
            marks = self.flags.get(name) or self.flags.get(name.replace("--no-", "--", 1), "")
            if not any(marks[place] == "x" for place in places if marks):
                found[self._complaint(name, marks, places)] = None
            elif name in self.values and places == (len(self.versions) - 1,) and value not in self.values[name]:
                found[self._value_complaint(name, value)] = None
        return tuple(found)

    def _places(self, version: str | None) -> tuple[int, ...]:
        """The recorded versions that a version lies on or between, by their number in the list."""
        last = len(self.versions) - 1
        numbers = version_numbers(version) if version is not None else ()
        if not numbers or numbers[0] > 2000:  # a nightly, or a build named by its date
            return (last,)
        for place, recorded in enumerate(self.versions):
            if numbers == version_numbers(recorded):
                return (place,)
            if numbers < version_numbers(recorded):
                return (max(0, place - 1), place)
        return (last,)

    def _complaint(self, name: str, marks: str, places: tuple[int, ...]) -> str:
        where = f"{self.engine} {self.versions[places[-1]]}"
        if name in self.replaced:
            successor = self.replaced[name]
            advice = successor if successor.startswith(NOTHING) else f"use {successor}"
            return f"{name} is not a flag of {where}: {advice}"
        if "x" in marks[places[-1] :]:
            return f"{name} is not a flag of {where}: it came by {self.versions[marks.index('x', places[-1])]}"
        if "x" in marks:
            return f"{name} is not a flag of {where}: it was last seen in {self.versions[marks.rindex('x')]}"
        return f"{name} is not a flag of {where}"

    def _value_complaint(self, name: str, value: str) -> str:
        known = self.values[name]
        close = get_close_matches(value, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known)}"
        return f"{name} of {self.engine} {self.versions[-1]} does not take {value!r}: {hint}"


def _flags_and_values(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each flag of a command line with the word it is given, which is empty for a bare one."""
    for place, word in enumerate(words):
        if word.startswith("--"):
            name, is_joined, value = word.partition("=")
            if not is_joined and place + 1 < len(words) and not words[place + 1].startswith("--"):
                value = words[place + 1]
            yield name.partition(".")[0], value  # --some-config.key=value sets one key of it


def flag_table(engine: str) -> FlagTable:
    """The recorded flags of "vllm", "sglang" or "transformers"."""
    values = load_yaml(data_path("recipes", "engines", f"{engine}.yaml"))
    versions = tuple(map(str, values["versions"]))
    assert all(len(marks) == len(versions) for marks in values["flags"].values()), "a mark for each version"
    return FlagTable(engine, versions, values["flags"], values["replaced"], values["values"], values["read"])
