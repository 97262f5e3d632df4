"""POST /v1/chat/completions."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter, Request, Response

from day0.runtime.batch import Grammar
from day0.runtime.server.answer import ANSWER_TYPES, answer
from day0.runtime.server.chat_writer import ChatWriter
from day0.runtime.server.errors import ApiError, not_supported
from day0.runtime.server.generation import Generation, sampling_params
from day0.runtime.server.offered import OfferedTools, offered_tools
from day0.runtime.server.schema import ChatRequest
from day0.runtime.server.service import ChatPrompt, Service
from day0.runtime.server.structured import json_grammar, schema_of_format


def chat_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/chat/completions", response_model=None, responses=ANSWER_TYPES)
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        service.admit(body.model)
        unsupported = body.unsupported()
        if unsupported is not None:
            raise not_supported(unsupported)
        tools = offered_tools(body, service.styles)
        prompt = await service.chat_prompt(body, tools.for_template)
        budget = service.output_budget(len(prompt.ids), _wanted_tokens(body), param="messages")
        params = sampling_params(
            body,
            max_tokens=budget,
            logprobs=_wanted_logprobs(body),
            end_token_ids=service.tokenizer.eos_token_ids,
            vocab_size=service.tokenizer.vocab_size,
        )
        grammar = await _grammar(service, body, tools, prompt)
        request_id = request.state.request_id
        visible = service.styles.visible(service.tokenizer, with_calls=tools.schemas is not None)
        generation = Generation(
            service,
            request_id,
            [prompt.ids],
            [replace(one, grammar=grammar) for one in params],
            body.stop_strings(),
            visible,
            prompt.images,
            request.state.client,
        )
        readers = [
            service.styles.reader(prompt.text, schemas=tools.schemas, as_list=tools.forced is not None) for _ in params
        ]
        writer = ChatWriter(service, request_id, readers, body, one_call=body.parallel_tool_calls is False)
        return await answer(request, generation, body, writer)

    return router


async def _grammar(service: Service, body: ChatRequest, tools: OfferedTools, prompt: ChatPrompt) -> Grammar | None:
    """What the answer is held to; None where it is free."""
    schema, param = schema_of_format(body.response_format), "response_format"
    if schema is not None and tools.schemas is not None:
        message = "an answer is either held to a format or may call tools; leave tools out, or tool_choice none"
        raise ApiError(400, message, param=param)
    if tools.forced is not None:
        schema, param = tools.forced, "tools"
    if schema is None:
        return None
    if body.ignore_eos:
        raise ApiError(400, "an answer in a given form ends where the form does", param="ignore_eos")

    def compiled() -> Grammar:
        service.tokenizer.definition()
        preface, rules = service.styles.preface(service.tokenizer, prompt.text)
        text = json_grammar(schema, param=param, preface=preface, rules=rules)
        return Grammar(text, str(service.tokenizer.folder))

    return await service.beside(compiled, param=param)


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
