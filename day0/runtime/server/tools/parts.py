"""The parts of a model's answer (reasoning, text for the user, calls of tools), and who reads them out of its text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class Content:
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call of one tool; `arguments` is JSON text. `id` is the model's own name for the call, where it gave one."""

    name: str
    arguments: str
    id: str | None = None


Part = Reasoning | Content | Call


class Reader(Protocol):
    """Reads parts out of text that comes in pieces; how it is cut into pieces changes nothing about what is read."""

    def push(self, text: str) -> list[Part]: ...

    def finish(self) -> list[Part]: ...


class PlainReader:
    """For models and requests without calls and reasoning: all is content."""

    def push(self, text: str) -> list[Part]:
        return [Content(text)] if text else []

    def finish(self) -> list[Part]:
        return []


class Held:
    """Text that waits: what may be the start of a marker is not given out before it is sure that it is none."""

    def __init__(self, markers: Sequence[str]) -> None:
        self._markers = tuple(markers)
        self.text = ""

    def push(self, text: str) -> None:
        self.text += text

    def find(self) -> tuple[int, str] | None:
        """Where the first marker begins, and which it is: the longest that begins there."""
        found = [(at, -len(marker), marker) for marker in self._markers if (at := self.text.find(marker)) >= 0]
        if not found:
            return None
        at, _, marker = min(found)
        return at, marker

    def take(self, size: int) -> str:
        taken, self.text = self.text[:size], self.text[size:]
        return taken

    def certain(self) -> str:
        """What can be no part of a marker any more, taken out. Only where `find` found none."""
        longest = max(map(len, self._markers), default=1)
        for size in range(min(longest - 1, len(self.text)), 0, -1):
            end = self.text[-size:]
            if any(marker.startswith(end) for marker in self._markers):
                return self.take(len(self.text) - size)
        return self.take(len(self.text))


def joined(parts: Iterable[Part]) -> list[Part]:
    """Parts with neighbours of one kind made one; calls stay as they are."""
    whole: list[Part] = []
    for part in parts:
        last = whole[-1] if whole else None
        if isinstance(part, Content) and isinstance(last, Content):
            whole[-1] = Content(last.text + part.text)
        elif isinstance(part, Reasoning) and isinstance(last, Reasoning):
            whole[-1] = Reasoning(last.text + part.text)
        else:
            whole.append(part)
    return whole
