"""Flags that each version of an engine takes, as recorded under recipes/engines/; stale ones and their successors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from day0.plan.engine_version import version_numbers
from day0.source.data_files import data_path, load_yaml


@dataclass(frozen=True, slots=True)
class FlagTable:
    """`flags` maps a flag to a mark ("x" or ".") for each of `versions`; `replaced` says what came after some."""

    engine: str
    versions: tuple[str, ...]
    flags: Mapping[str, str]
    replaced: Mapping[str, str]

    def complaints(self, words: Iterable[str], version: str | None) -> tuple[str, ...]:
        """What is wrong with the flags of a command line on a version; None is the newest recorded.

        Between two recorded versions a flag of either is let through: it came or went somewhere in between.
        """
        places = self._places(version)
        found = []
        for word in dict.fromkeys(word for word in words if word.startswith("--")):
            name = word.partition("=")[0].partition(".")[0]  # --some-config.key=value sets one key of it
            marks = self.flags.get(name) or self.flags.get(name.replace("--no-", "--", 1), "")
            if not any(marks[place] == "x" for place in places if marks):
                found.append(self._complaint(name, marks, places))
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
            return f"{name} is not a flag of {where}: use {self.replaced[name]}"
        if "x" in marks[places[-1] :]:
            return f"{name} is not a flag of {where}: it came by {self.versions[marks.index('x', places[-1])]}"
        if "x" in marks:
            return f"{name} is not a flag of {where}: it was last seen in {self.versions[marks.rindex('x')]}"
        return f"{name} is not a flag of {where}"


def flag_table(engine: str) -> FlagTable:
    """The recorded flags of "vllm" or "sglang"."""
    values = load_yaml(data_path("recipes", "engines", f"{engine}.yaml"))
    versions = tuple(map(str, values["versions"]))
    assert all(len(marks) == len(versions) for marks in values["flags"].values()), "a mark for each version"
    return FlagTable(engine, versions, values["flags"], values["replaced"])
