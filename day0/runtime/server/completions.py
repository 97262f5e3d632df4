"""POST /v1/completions: plain prompts, one or many, as text or as token ids."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from fastapi import APIRouter, Request, Response
from msgspec import UNSET, UnsetType

from day0.runtime.server.answer import ANSWER_TYPES, answer
from day0.runtime.server.errors import ApiError, not_supported
from day0.runtime.server.generation import Generation, Piece, by_choice, sampling_params
from day0.runtime.server.logprobs import completion_logprobs, token_text
from day0.runtime.server.schema import (
    MAX_SEQUENCES,
    CompletionChoice,
    CompletionLogprobs,
    CompletionRequest,
    CompletionResponse,
    Usage,
)
from day0.runtime.server.service import Service

DEFAULT_MAX_TOKENS = 16
"""What OpenAI's completion endpoint generates where the request does not say."""


def completions_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/completions", response_model=None, responses=ANSWER_TYPES)
    async def completions(body: CompletionRequest, request: Request) -> Response:
        service.admit(body.model)
        unsupported = body.unsupported()
        if unsupported is not None:
            raise not_supported(unsupported)
        prompts = await _prompt_ids(service, body)
        max_tokens = body.max_tokens or DEFAULT_MAX_TOKENS
        for prompt in prompts:
            service.output_budget(len(prompt), max_tokens, param="prompt")
        params = sampling_params(
            body,
            max_tokens=max_tokens,
            logprobs=body.logprobs,
            end_token_ids=service.tokenizer.eos_token_ids,
            vocab_size=service.tokenizer.vocab_size,
        )
        request_id = request.state.request_id
        generation = Generation(service, request_id, prompts, params, body.stop_strings(), client=request.state.client)
        writer = CompletionWriter(service, request_id, generation.num_choices, body)
        return await answer(request, generation, body, writer)

    return router


class CompletionWriter:
    """Spells completions, whole and in chunks."""

    def __init__(self, service: Service, request_id: str, num_choices: int, body: CompletionRequest) -> None:
        self._tokenizer = service.tokenizer
        self._model = service.served_name
        self._id = f"cmpl-{request_id}"
        self._created = int(time.time())
        self._num_choices = num_choices
        self._with_logprobs = body.logprobs is not None
        self._usage_of_chunks: UnsetType | None = None if body.wants_usage_chunk() else UNSET
        self._offsets = [0] * num_choices  # characters of each choice that earlier chunks' tokens stand for

    def opening(self) -> Iterator[CompletionResponse]:
        return iter(())

    def chunk(self, piece: Piece) -> CompletionResponse | None:
        logprobs = self._logprobs([piece], self._offsets[piece.choice]) if piece.token is not None else None
        if logprobs is not None and piece.token is not None:
            self._offsets[piece.choice] += len(token_text(self._tokenizer, piece.token.token_id))
        if not piece.text and logprobs is None and piece.finish_reason is None:
            return None
        choice = CompletionChoice(piece.choice, piece.text, logprobs, piece.finish_reason)
        return CompletionResponse(self._id, self._created, self._model, [choice], self._usage_of_chunks)

    def usage_chunk(self, usage: Usage) -> CompletionResponse:
        return CompletionResponse(self._id, self._created, self._model, [], usage)

    def whole(self, pieces: Sequence[Piece], usage: Usage) -> CompletionResponse:
        choices = []
        for index, own in enumerate(by_choice(pieces, self._num_choices)):
            text = "".join(piece.text for piece in own)
            choices.append(CompletionChoice(index, text, self._logprobs(own, 0), own[-1].finish_reason))
        return CompletionResponse(self._id, self._created, self._model, choices, usage)

    def _logprobs(self, pieces: Sequence[Piece], offset: int) -> CompletionLogprobs | None:
        if not self._with_logprobs:
            return None
        tokens = [piece.token for piece in pieces if piece.token is not None]
        return completion_logprobs(self._tokenizer, tokens, offset)


async def _prompt_ids(service: Service, body: CompletionRequest) -> list[tuple[int, ...]]:
    given = body.prompts()
    num_sequences = len(given) * (body.n or 1)
    if not 1 <= num_sequences <= MAX_SEQUENCES:
        message = f"prompts times n must be 1 to {MAX_SEQUENCES} sequences, got {num_sequences}"
        raise ApiError(400, message, param="prompt")
    prompts = []
    for prompt in given:
        if isinstance(prompt, str):
            prompts.append(await service.text_ids(prompt, add_special_tokens=body.add_special_tokens))
        else:
            prompts.append(tuple(prompt))
    return prompts
