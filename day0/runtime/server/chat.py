"""POST /v1/chat/completions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from fastapi import APIRouter, Request, Response
from msgspec import UNSET, UnsetType

from day0.runtime.server.answer import answer
from day0.runtime.server.errors import ApiError, not_supported
from day0.runtime.server.generation import Generation, Piece, by_choice, sampling_params
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
from day0.runtime.server.service import Service


def chat_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/chat/completions", response_model=None)
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        service.admit(body.model)
        unsupported = body.unsupported()
        if unsupported is not None:
            raise not_supported(unsupported)
        prompt = await service.message_ids(body)
        budget = service.output_budget(len(prompt), _wanted_tokens(body), param="messages")
        params = sampling_params(
            body,
            max_tokens=budget,
            logprobs=_wanted_logprobs(body),
            end_token_ids=service.tokenizer.eos_token_ids,
        )
        request_id = request.state.request_id
        generation = Generation(service, request_id, [prompt], params, body.stop_strings())
        return await answer(request, generation, body, ChatWriter(service, request_id, generation.num_choices, body))

    return router


class ChatWriter:
    """Spells chat completions, whole and in chunks."""

    def __init__(self, service: Service, request_id: str, num_choices: int, body: ChatRequest) -> None:
        self._tokenizer = service.tokenizer
        self._model = service.served_name
        self._id = f"chatcmpl-{request_id}"
        self._created = int(time.time())
        self._num_choices = num_choices
        self._with_logprobs = bool(body.logprobs)
        self._usage_of_chunks: UnsetType | None = None if body.wants_usage_chunk() else UNSET

    def opening(self) -> Iterator[ChatChunk]:
        for index in range(self._num_choices):
            yield self._chunk([ChatChunkChoice(index, ChatDelta(role="assistant", content=""))])

    def chunk(self, piece: Piece) -> ChatChunk | None:
        logprobs = self._logprobs([piece]) if piece.token is not None else None
        if not piece.text and logprobs is None and piece.finish_reason is None:
            return None
        delta = ChatDelta(content=piece.text) if piece.text else ChatDelta()
        return self._chunk([ChatChunkChoice(piece.choice, delta, logprobs, piece.finish_reason)])

    def usage_chunk(self, usage: Usage) -> ChatChunk:
        return ChatChunk(self._id, self._created, self._model, [], usage)

    def whole(self, pieces: Sequence[Piece], usage: Usage) -> ChatResponse:
        choices = []
        for index, own in enumerate(by_choice(pieces, self._num_choices)):
            message = ChatAnswer("".join(piece.text for piece in own))
            choices.append(ChatChoice(index, message, self._logprobs(own), own[-1].finish_reason))
        return ChatResponse(self._id, self._created, self._model, choices, usage)

    def _chunk(self, choices: Sequence[ChatChunkChoice]) -> ChatChunk:
        return ChatChunk(self._id, self._created, self._model, choices, self._usage_of_chunks)

    def _logprobs(self, pieces: Sequence[Piece]) -> ChatLogprobs | None:
        if not self._with_logprobs:
            return None
        return chat_logprobs(self._tokenizer, [piece.token for piece in pieces if piece.token is not None])


def _wanted_tokens(body: ChatRequest) -> int | None:
    if body.max_tokens is not None and body.max_completion_tokens not in (None, body.max_tokens):
        message = "max_tokens and max_completion_tokens differ; max_tokens is the older name, give one of them"
        raise ApiError(400, message, param="max_tokens")
    return body.max_completion_tokens or body.max_tokens


def _wanted_logprobs(body: ChatRequest) -> int | None:
    if body.logprobs:
        return body.top_logprobs or 0
    if body.top_logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true", param="top_logprobs")
    return None
