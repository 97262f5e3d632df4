"""A generation as an HTTP answer, whole or as server-sent events, given up when the client goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from day0.errors import Day0Error
from day0.runtime.server.errors import ApiError, as_api_error
from day0.runtime.server.generation import Generation, Piece
from day0.runtime.server.schema import PromptTokensDetails, SamplingFields, Usage

T = TypeVar("T")

ANSWER_TYPES: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {}, "text/event-stream": {}}}}
"""The two forms of `answer`, for the OpenAPI document."""


class Writer(Protocol):
    """Spells an endpoint's answers. `with_usage` says that chunks carry a usage field, null but in the last."""

    def opening(self) -> Iterable[msgspec.Struct]:
        """Chunks sent before the first token."""

    def chunk(self, piece: Piece) -> msgspec.Struct | None:
        """The chunk of one piece; None where it says nothing."""

    def usage_chunk(self, usage: Usage) -> msgspec.Struct: ...

    def whole(self, pieces: Sequence[Piece], usage: Usage) -> msgspec.Struct: ...


class EventStream(StreamingResponse):
    """Server-sent events whose source is closed however the response ends."""

    def __init__(self, events: AsyncIterator[bytes], close: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close()


async def answer(request: Request, generation: Generation, fields: SamplingFields, writer: Writer) -> Response:
    """Run `generation` and answer as `fields` want it. Refusals come before the first byte and keep their status."""
    if fields.stream_options is not None and not fields.stream:
        raise ApiError(400, "stream_options is allowed only with stream: true", param="stream_options")
    try:
        await unless_gone(request, generation.start())
        if fields.stream:
            events = _events(generation, writer, with_usage=fields.wants_usage_chunk())
            return EventStream(events, generation.close)
        pieces = await unless_gone(request, _collect(generation))
    except BaseException:
        generation.close()
        raise
    generation.close()
    return json_response(writer.whole(pieces, usage_of(generation)))


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client closes its connection."""
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ApiError(499, "the client closed the request")
        return working.result()
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


def json_response(document: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(document), media_type="application/json")


def usage_of(generation: Generation) -> Usage:
    prompt, completion = generation.prompt_tokens, generation.completion_tokens
    return Usage(prompt, completion, prompt + completion, PromptTokensDetails(generation.reused_tokens))


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _collect(generation: Generation) -> list[Piece]:
    return [piece async for piece in generation.pieces()]


async def _events(generation: Generation, writer: Writer, *, with_usage: bool) -> AsyncIterator[bytes]:
    try:
        for chunk in writer.opening():
            yield _event(chunk)
        async for piece in generation.pieces():
            written = writer.chunk(piece)
            if written is not None:
                yield _event(written)
    except (Day0Error, ApiError) as error:
        # The status has been sent; what is left is to say so in the stream and to leave it without its end mark.
        yield b"data: " + as_api_error(error).encoded() + b"\n\n"
        return
    if with_usage:
        yield _event(writer.usage_chunk(usage_of(generation)))
    yield b"data: [DONE]\n\n"


def _event(document: msgspec.Struct) -> bytes:
    return b"data: " + msgspec.json.encode(document) + b"\n\n"
