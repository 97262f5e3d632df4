"""Tool calls between marks in the text, in the styles of Hermes, Qwen, DeepSeek, Kimi and GLM."""

from __future__ import annotations

from dataclasses import dataclass

from day0.runtime.server.tools import bodies
from day0.runtime.server.tools.bodies import ParseBody, Schemas
from day0.runtime.server.tools.parts import Content, Held, Part


@dataclass(frozen=True, slots=True)
class TagStyle:
    """A call is what stands between `begin` and `end`; `around` are marks of a list of calls, which say nothing.

    `sign` is what the chat template of a model of this style contains.
    """

    name: str
    sign: str
    begin: str
    end: str
    parse: ParseBody
    around: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()

    @property
    def markers(self) -> tuple[str, ...]:
        """All marks, those within a call included: where they are control tokens they must have a text."""
        return (self.begin, self.end, *self.around, *self.inside)


_DEEPSEEK_LIST = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_DSML_LIST = (
    "<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>",
)  # fmt: skip
TAG_STYLES: tuple[TagStyle, ...] = (
    TagStyle(
        "kimi", "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_end|>", bodies.kimi_body,
        ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"), ("<|tool_call_argument_begin|>",),
    ),
    TagStyle(
        "deepseek_dsml", "｜DSML｜", "<｜DSML｜invoke", "</｜DSML｜invoke>", bodies.dsml_body, _DSML_LIST, ("｜DSML｜",)
    ),
    TagStyle(
        "deepseek", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", bodies.deepseek_body,
        _DEEPSEEK_LIST, ("<｜tool▁sep｜>",),
    ),
    TagStyle(
        "glm", "<arg_key>", "<tool_call>", "</tool_call>", bodies.glm_body,
        inside=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    ),
    TagStyle("qwen_xml", "<function=", "<tool_call>", "</tool_call>", bodies.xml_body),
    TagStyle("hermes", "<tool_call>", "<tool_call>", "</tool_call>", bodies.json_body),
)  # fmt: skip
"""In the order in which a template is asked for their signs: the last ones' are found in templates of others too."""


class TagReader:
    """Reads calls in one style. A call is given out whole; what is no call after all stays text.

    White space before and between calls belongs to the marks and is dropped.
    """

    def __init__(self, style: TagStyle, schemas: Schemas) -> None:
        self._style = style
        self._schemas = schemas
        self._text = Held((style.begin, *style.around))
        self._space = ""  # white space that is dropped if a call follows
        self._in_call = False
        self._called = False

    def push(self, text: str) -> list[Part]:
        self._text.push(text)
        parts: list[Part] = []
        while True:
            if self._in_call:
                size = self._text.text.find(self._style.end)
                if size < 0:
                    return parts
                body = self._text.take(size)
                self._text.take(len(self._style.end))
                self._in_call = False
                parts += self._call(body)
                continue
            found = self._text.find()
            if found is None or not self._settled(*found):
                parts += self._content(self._text.certain() if found is None else "")
                return parts
            at, marker = found
            parts += self._content(self._text.take(at))
            self._text.take(len(marker))
            self._space = ""
            self._in_call = marker == self._style.begin

    def finish(self) -> list[Part]:
        """What is held; a call that was cut off is text."""
        rest = self._text.take(len(self._text.text))
        if self._in_call:
            self._in_call = False
            return [Content(self._style.begin + rest)]
        space, self._space = self._space, ""
        rest = space + rest
        return [] if self._called and not rest.strip() else [Content(rest)] if rest else []

    def _settled(self, at: int, marker: str) -> bool:
        """Whether no longer marker can still come to stand here."""
        rest = self._text.text[at:]
        others = (self._style.begin, *self._style.around)
        return not any(len(other) > len(rest) and other.startswith(rest) and other != marker for other in others)

    def _call(self, body: str) -> list[Part]:
        call = self._style.parse(body, self._schemas)
        if call is None:
            return [Content(self._style.begin + body + self._style.end)]
        self._called = True
        return [call]

    def _content(self, text: str) -> list[Part]:
        text = self._space + text
        given = text.rstrip()
        self._space = text[len(given) :]
        return [Content(given)] if given else []
