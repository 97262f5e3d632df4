"""How a model writes reasoning and calls of tools: chosen by its chat template, or by name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from day0.errors import InputError
from day0.runtime.server.reasoning import THINK_STYLES, ThinkReader, ThinkStyle, opened
from day0.runtime.server.tools import harmony
from day0.runtime.server.tools.bodies import Schemas
from day0.runtime.server.tools.parts import Call, Content, Part, PlainReader, Reader
from day0.runtime.server.tools.tagged import TAG_STYLES, TagReader, TagStyle

if TYPE_CHECKING:
    from day0.runtime.tokenizer import Tokenizer

HARMONY = "harmony"
NONE = "none"
TOOL_STYLES = (HARMONY, *(style.name for style in TAG_STYLES), NONE)
REASONING_STYLES = (HARMONY, *(style.name for style in THINK_STYLES), NONE)
_ANY_TEXT = "/(.|\\n)*/"


class CallListReader:
    """Reads the list of calls that a grammar held an answer to. It is given out when it is whole."""

    def __init__(self) -> None:
        self._text = ""

    def push(self, text: str) -> list[Part]:
        self._text += text
        return []

    def finish(self) -> list[Part]:
        """A list that was cut off is text."""
        try:
            calls = json.loads(self._text)
        except ValueError:
            return [Content(self._text)] if self._text else []
        return [Call(call["name"], json.dumps(call["arguments"], ensure_ascii=False)) for call in calls]


class _CallsInContent:
    """The parts of another reader, with a list of calls where its content was."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._calls = CallListReader()

    def push(self, text: str) -> list[Part]:
        return self._sorted(self._reader.push(text))

    def finish(self) -> list[Part]:
        return self._sorted(self._reader.finish()) + self._calls.finish()

    def _sorted(self, parts: Sequence[Part]) -> list[Part]:
        for part in parts:
            if isinstance(part, Content):
                self._calls.push(part.text)
        return [part for part in parts if not isinstance(part, Content)]


@dataclass(frozen=True, slots=True)
class Styles:
    """The styles of one model; `harmony` does both jobs by itself."""

    harmony: bool
    tools: TagStyle | None
    reasoning: ThinkStyle | None

    @classmethod
    def of(cls, template: str, *, tools: str | None = None, reasoning: str | None = None) -> Styles:
        """By what the template contains, where no name is given. InputError for a name that nobody has."""
        if harmony.CHANNEL in template and harmony.START in template:
            tools, reasoning = tools or HARMONY, reasoning or HARMONY
        for name, known, option in (
            (tools, TOOL_STYLES, "--tool-call-parser"),
            (reasoning, REASONING_STYLES, "--reasoning-parser"),
        ):
            if name is not None and name not in known:
                raise InputError(f"no parser {name!r}", where=option, hint=f"known: {', '.join(known)}")
        if (tools == HARMONY) != (reasoning == HARMONY):
            hint = "give --tool-call-parser harmony and --reasoning-parser harmony"
            raise InputError("harmony reads reasoning and calls together", where="--tool-call-parser", hint=hint)
        return cls(
            harmony=tools == HARMONY,
            tools=next((style for style in TAG_STYLES if _is(style, tools, template)), None),
            reasoning=next((style for style in THINK_STYLES if _is(style, reasoning, template)), None),
        )

    @property
    def reads_calls(self) -> bool:
        return self.harmony or self.tools is not None

    def reader(self, prompt: str, *, schemas: Schemas | None, as_list: bool) -> Reader:
        """For one choice of an answer to `prompt`. `schemas` are those of offered tools, None where calls are not to
        be read; `as_list`: a grammar has made the content a list of calls."""
        reads = schemas is not None and not as_list
        reader: Reader = PlainReader()
        if self.harmony:
            reader = harmony.HarmonyReader(with_calls=reads)
        elif reads and self.tools is not None and schemas is not None:
            reader = TagReader(self.tools, schemas)
        if self.reasoning is not None:
            reader = ThinkReader(self.reasoning, reader, inside=opened(prompt, self.reasoning))
        return _CallsInContent(reader) if as_list else reader

    def visible(self, tokenizer: Tokenizer, *, with_calls: bool) -> dict[int, str]:
        """Control tokens that the readers go by."""
        marks: tuple[str, ...] = harmony.MARKERS if self.harmony else ()
        if self.reasoning is not None:
            marks += (self.reasoning.begin, self.reasoning.end)
        if with_calls and self.tools is not None:
            marks += self.tools.markers
        return tokenizer.control_tokens(marks)

    def preface(self, tokenizer: Tokenizer, prompt: str) -> tuple[str, str]:
        """What a grammar lets stand before the answer itself, and the rules that takes (Lark of llguidance)."""
        if self.harmony:
            marks = (harmony.CHANNEL, harmony.MESSAGE, harmony.ENDS[0], harmony.START)
            channel, message, end, start = (_spelt(tokenizer, mark) for mark in marks)
            thought = f'({channel} "analysis" {message} TEXT {end} {start} "assistant")?'
            return f'{thought} {channel} "final" {message}', f"TEXT: {_ANY_TEXT}\n"
        if self.reasoning is None:
            return "", ""
        begin, end = _spelt(tokenizer, self.reasoning.begin), _spelt(tokenizer, self.reasoning.end)
        if end.startswith("<["):
            thought, rules = f"TEXT {end} /\\s*/", f"TEXT: {_ANY_TEXT}\n"
        else:
            thought, rules = "thought /\\s*/", f"thought[suffix={end}]: {_ANY_TEXT}\n"
        return (thought if opened(prompt, self.reasoning) else f"({begin} {thought})?"), rules


def _is(style: TagStyle | ThinkStyle, name: str | None, template: str) -> bool:
    return style.name == name if name is not None else style.sign in template


def _spelt(tokenizer: Tokenizer, mark: str) -> str:
    """A mark in a grammar: the id of a control token, or a text."""
    ids = tokenizer.control_tokens([mark])
    return f"<[{next(iter(ids))}]>" if ids else json.dumps(mark, ensure_ascii=False)
