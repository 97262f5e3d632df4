"""gpt-oss's harmony format: an answer is messages, each with a channel (analysis, commentary, final) and a recipient.

Source of the format: the openai/harmony repository's description.
"""

from __future__ import annotations

import re

from day0.runtime.server.tools.parts import Call, Content, Held, Part, Reasoning

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
MARKERS = (START, CHANNEL, MESSAGE, "<|constrain|>", *ENDS)

_RECIPIENT = re.compile(r"to=functions\.(?P<name>[^\s<]+)")


class HarmonyReader:
    """`with_calls` False leaves calls unread, for requests that offered no tools: they are commentary then.

    A call ends with an end token that has no text, so the end of the text ends it too.
    """

    def __init__(self, *, with_calls: bool) -> None:
        self._with_calls = with_calls
        self._text = Held((START, MESSAGE, *ENDS))
        self._header: str | None = ""  # None inside a message
        self._channel = "final"
        self._recipient: str | None = None
        self._arguments = ""

    def push(self, text: str) -> list[Part]:
        self._text.push(text)
        parts: list[Part] = []
        while (found := self._text.find()) is not None:
            at, marker = found
            parts += self._take(self._text.take(at))
            self._text.take(len(marker))
            parts += self._mark(marker)
        return parts + self._take(self._text.certain())

    def finish(self) -> list[Part]:
        parts = self._take(self._text.take(len(self._text.text)))
        if self._header:
            parts.append(Content(self._header))  # a text without any marks, or one cut off in a header
            self._header = ""
        return parts + self._end()

    def _take(self, text: str) -> list[Part]:
        if not text:
            return []
        if self._header is not None:
            self._header += text
            return []
        if self._recipient is not None:
            self._arguments += text
            return []
        return [Reasoning(text) if self._channel == "analysis" else Content(text)]

    def _mark(self, marker: str) -> list[Part]:
        if marker == MESSAGE and self._header is not None:
            channel = self._header.partition(CHANNEL)[2]
            self._channel = (channel.split() or ["final"])[0].partition("<")[0]
            recipient = _RECIPIENT.search(self._header)
            self._recipient = recipient["name"] if recipient and self._with_calls else None
            self._header = None
            return []
        parts = self._end()
        self._header = ""
        return parts

    def _end(self) -> list[Part]:
        """The call that the message was, if it was one and is whole."""
        name, arguments = self._recipient, self._arguments
        self._recipient, self._arguments = None, ""
        return [] if name is None else [Call(name, arguments.strip() or "{}")]
