"""What a model thinks before it answers, told apart from the answer."""

from __future__ import annotations

from dataclasses import dataclass

from day0.runtime.server.tools.parts import Held, Part, Reader, Reasoning


@dataclass(frozen=True, slots=True)
class ThinkStyle:
    """Reasoning stands between `begin` and `end`, before the answer. `sign` is in the chat template."""

    name: str
    sign: str
    begin: str
    end: str


THINK_STYLES: tuple[ThinkStyle, ...] = (
    ThinkStyle("think", "</think>", "<think>", "</think>"),
    ThinkStyle("seed", "</seed:think>", "<seed:think>", "</seed:think>"),
    ThinkStyle("unicode_think", "◁/think▷", "◁think▷", "◁/think▷"),
)


class ThinkReader:
    """Hands what follows the reasoning to `rest`. White space around the marks is dropped.

    `inside`: the prompt has opened the reasoning already. A text that neither is inside nor begins with the mark has
    no reasoning.
    """

    def __init__(self, style: ThinkStyle, rest: Reader, *, inside: bool) -> None:
        self._style = style
        self._rest = rest
        self._state = "reasoning" if inside else "start"
        self._held = Held((style.end,))
        self._fresh = True  # at the beginning of the reasoning
        self._space = ""

    def push(self, text: str) -> list[Part]:
        if self._state == "rest":
            return self._rest.push(text)
        self._held.push(text)
        if self._state == "start" and not self._begin():
            return []
        if self._state == "reasoning":
            return self._reason()
        if self._state == "after":
            return self._after()
        return self._rest.push(self._held.take(len(self._held.text)))

    def finish(self) -> list[Part]:
        """What is held. Reasoning that never ended stays reasoning."""
        rest = self._held.take(len(self._held.text))
        if self._state == "reasoning":
            return self._reasoning(rest)
        return ([] if self._state == "after" else self._rest.push(rest)) + self._rest.finish()

    def _begin(self) -> bool:
        """Whether it is decided how the text begins."""
        begun = self._held.text.lstrip()
        if begun.startswith(self._style.begin):
            self._held.text = begun.removeprefix(self._style.begin)
            self._state = "reasoning"
        elif not self._style.begin.startswith(begun):
            self._state = "rest"
        return self._state != "start"

    def _reason(self) -> list[Part]:
        found = self._held.find()
        if found is None:
            return self._reasoning(self._held.certain())
        parts = self._reasoning(self._held.take(found[0]))
        self._held.take(len(self._style.end))
        self._state = "after"
        return parts + self._after()

    def _after(self) -> list[Part]:
        text = self._held.text.lstrip()
        self._held.text = ""
        if not text:
            return []
        self._state = "rest"
        return self._rest.push(text)

    def _reasoning(self, text: str) -> list[Part]:
        text = self._space + text
        if self._fresh:
            text = text.lstrip()
        given = text.rstrip()
        self._space = text[len(given) :]
        self._fresh = self._fresh and not given
        return [Reasoning(given)] if given else []


def opened(prompt: str, style: ThinkStyle) -> bool:
    """Whether a prompt ends inside reasoning."""
    return prompt.rfind(style.begin) > prompt.rfind(style.end)
