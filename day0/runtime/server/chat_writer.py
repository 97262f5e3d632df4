"""Chat completions as they are sent: the parts that readers find in the text, whole and in chunks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from uuid import uuid4

from msgspec import UNSET, UnsetType

from day0.runtime.server.generation import Piece, by_choice
from day0.runtime.server.logprobs import chat_logprobs
from day0.runtime.server.schema import (
    ChatAnswer,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ChatRequest,
    ChatResponse,
    Usage,
)
from day0.runtime.server.schema_tools import FunctionCall, ToolCall, ToolCallDelta
from day0.runtime.server.service import Service
from day0.runtime.server.tools.parts import Call, Content, Part, Reader, Reasoning


class _Choice:
    """One choice as far as it has been read."""

    def __init__(self, reader: Reader, *, one_call: bool) -> None:
        self._reader = reader
        self._one_call = one_call
        self.num_calls = 0

    def read(self, piece: Piece) -> list[Part]:
        parts = self._reader.push(piece.text) if piece.text else []
        if piece.finish_reason is not None:
            parts += self._reader.finish()
        return [part for part in parts if not isinstance(part, Call) or self._counts()]

    def finish_reason(self, piece: Piece) -> str | None:
        return "tool_calls" if self.num_calls and piece.finish_reason == "stop" else piece.finish_reason

    def _counts(self) -> bool:
        """Whether one more call is told; of a request that wants one at a time only the first is."""
        if self._one_call and self.num_calls:
            return False
        self.num_calls += 1
        return True


class ChatWriter:
    """Spells chat completions, whole and in chunks."""

    def __init__(
        self, service: Service, request_id: str, readers: Sequence[Reader], body: ChatRequest, *, one_call: bool
    ) -> None:
        """`readers` has one for each choice; `one_call` leaves out calls after a choice's first."""
        self._tokenizer = service.tokenizer
        self._model = service.served_name
        self._id = f"chatcmpl-{request_id}"
        self._created = int(time.time())
        self._choices = [_Choice(reader, one_call=one_call) for reader in readers]
        self._with_logprobs = bool(body.logprobs)
        self._usage_of_chunks: UnsetType | None = None if body.wants_usage_chunk() else UNSET

    def opening(self) -> Iterator[ChatChunk]:
        for index in range(len(self._choices)):
            yield self._chunk([ChatChunkChoice(index, ChatDelta(role="assistant", content=""))])

    def chunk(self, piece: Piece) -> ChatChunk | None:
        choice = self._choices[piece.choice]
        first_call = choice.num_calls
        parts = choice.read(piece)
        logprobs = self._logprobs([piece]) if piece.token is not None else None
        if not parts and logprobs is None and piece.finish_reason is None:
            return None
        calls = [ToolCallDelta(first_call + at, call.id, call.function) for at, call in enumerate(_calls(parts))]
        delta = ChatDelta(
            content=_text(parts, Content) or UNSET,
            reasoning_content=_text(parts, Reasoning) or UNSET,
            tool_calls=calls or UNSET,
        )
        return self._chunk([ChatChunkChoice(piece.choice, delta, logprobs, choice.finish_reason(piece))])

    def usage_chunk(self, usage: Usage) -> ChatChunk:
        return ChatChunk(self._id, self._created, self._model, [], usage)

    def whole(self, pieces: Sequence[Piece], usage: Usage) -> ChatResponse:
        choices = []
        for index, own in enumerate(by_choice(pieces, len(self._choices))):
            choice = self._choices[index]
            parts = [part for piece in own for part in choice.read(piece)]
            calls = _calls(parts)
            content = _text(parts, Content)
            message = ChatAnswer(
                None if calls and not content else content,
                reasoning_content=_text(parts, Reasoning) or UNSET,
                tool_calls=calls or UNSET,
            )
            choices.append(ChatChoice(index, message, self._logprobs(own), choice.finish_reason(own[-1])))
        return ChatResponse(self._id, self._created, self._model, choices, usage)

    def _chunk(self, choices: Sequence[ChatChunkChoice]) -> ChatChunk:
        return ChatChunk(self._id, self._created, self._model, choices, self._usage_of_chunks)

    def _logprobs(self, pieces: Sequence[Piece]) -> ChatLogprobs | None:
        if not self._with_logprobs:
            return None
        return chat_logprobs(self._tokenizer, [piece.token for piece in pieces if piece.token is not None])


def _text(parts: Sequence[Part], kind: type[Content | Reasoning]) -> str:
    return "".join(part.text for part in parts if isinstance(part, (Content, Reasoning)) and isinstance(part, kind))


def _calls(parts: Sequence[Part]) -> list[ToolCall]:
    """Calls as they are told, with an id of ours where the model gave none."""
    return [
        ToolCall(part.id or f"call_{uuid4().hex}", FunctionCall(part.name, part.arguments))
        for part in parts
        if isinstance(part, Call)
    ]
