"""POST /tokenize and /detokenize."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter, Response

from day0.runtime.server.answer import json_response
from day0.runtime.server.errors import ApiError
from day0.runtime.server.logprobs import token_text
from day0.runtime.server.schema import (
    DetokenizeRequest,
    DetokenizeResponse,
    TemplateFields,
    TokenizeRequest,
    TokenizeResponse,
)
from day0.runtime.server.service import Service

if TYPE_CHECKING:
    from day0.runtime.tokenizer import Tokenizer


def tokenize_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/tokenize", response_model=None)
    async def tokenize(body: TokenizeRequest) -> Response:
        service.admit(body.model)
        if (body.prompt is None) == (body.messages is None):
            raise ApiError(400, "give either prompt or messages", param="prompt")
        if body.messages is not None:
            prompt = await service.chat_prompt(
                TemplateFields(
                    messages=body.messages,
                    add_generation_prompt=body.add_generation_prompt,
                    chat_template_kwargs=body.chat_template_kwargs,
                ),
                to_run=False,
            )
            ids = prompt.ids
        else:
            ids = await service.text_ids(body.prompt or "", add_special_tokens=body.add_special_tokens, to_run=False)
        texts = None
        if body.return_token_strs:
            texts = await service.beside(partial(_token_texts, service.tokenizer, ids), param="return_token_strs")
        return json_response(TokenizeResponse(ids, len(ids), service.worker.max_model_len, texts))

    @router.post("/detokenize", response_model=None)
    async def detokenize(body: DetokenizeRequest) -> Response:
        service.admit(body.model)
        size = service.tokenizer.vocab_size
        for position, token in enumerate(body.tokens):
            if token >= size:
                message = f"token {token} is outside the vocabulary of {size}"
                raise ApiError(400, message, param=f"tokens[{position}]")
        decode = partial(service.tokenizer.decode, body.tokens, skip_special_tokens=False)
        text = await service.beside(decode, param="tokens")
        return json_response(DetokenizeResponse(text))

    return router


def _token_texts(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    texts = {token: token_text(tokenizer, token) for token in set(ids)}
    return [texts[token] for token in ids]
