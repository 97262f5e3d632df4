"""From the prompts of one HTTP request to pieces of text: the choices it wants, run side by side in the engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from day0.runtime.batch import FinishReason, Request, SamplingParams, TokenOutput
from day0.runtime.engine.worker import PromptImages, TokenStream
from day0.runtime.server.errors import ApiError
from day0.runtime.server.metrics import RequestRecord
from day0.runtime.server.schema import SamplingFields
from day0.runtime.server.service import Service
from day0.runtime.tokenizer import TextStream


@dataclass(frozen=True, slots=True)
class Piece:
    """What one token did to one choice.

    `text` may be empty: it waits for the rest of a character, or for what turns out not to be a stop string. `token`
    is None where the token ended the choice and is no part of its text.
    """

    choice: int
    text: str
    token: TokenOutput | None
    finish_reason: FinishReason | None


@dataclass(slots=True)
class _Choice:
    index: int
    prompt: int
    text: TextStream
    prompt_tokens: int
    num_generated: int = 0
    reused: int = 0
    token_at: float | None = None
    finish_reason: FinishReason | None = None


class Generation:
    """The choices of one HTTP request: `num_choices` of each prompt, those of a prompt side by side.

    `start`, then `pieces`, and `close` in any case: it gives up what still runs and hands in the record.
    """

    def __init__(
        self,
        service: Service,
        request_id: str,
        prompts: Sequence[tuple[int, ...]],
        params: Sequence[SamplingParams],
        stop: Sequence[str],
        visible: Mapping[int, str] | None = None,
        images: PromptImages | None = None,
        client: str = "",
    ) -> None:
        """`params` are those of the choices of one prompt; every prompt gets the same. `visible` are control tokens
        that belong to the text, `images` those among the tokens of every prompt, `client` who
        asks."""
        self._service = service
        self._request_id = request_id
        self._accepted_at = time.monotonic()
        self._first_token_at: float | None = None
        self._stream: TokenStream | None = None
        self._closed = False
        self._images = images
        self._requests: list[Request] = []
        self._choices: dict[str, _Choice] = {}
        for number, prompt in enumerate(prompts):
            for choice_params in params:
                request = Request(uuid4().hex, prompt, choice_params, client=client)
                choice = _Choice(len(self._requests), number, TextStream(service.tokenizer, stop, visible), len(prompt))
                self._requests.append(request)
                self._choices[request.id] = choice
        self.prompt_tokens = sum(len(prompt) for prompt in prompts)

    @property
    def num_choices(self) -> int:
        return len(self._choices)

    @property
    def completion_tokens(self) -> int:
        return sum(choice.num_generated for choice in self._choices.values())

    @property
    def reused_tokens(self) -> int:
        """Prompt tokens found in the cache. Of a prompt's choices the one that found least counts: others found what it
        had just computed."""
        least: dict[int, int] = {}
        for choice in self._choices.values():
            least[choice.prompt] = min(choice.reused, least.get(choice.prompt, choice.reused))
        return sum(least.values())

    async def start(self) -> None:
        """Returns once the engine has taken all the choices."""
        self._stream = await self._service.worker.open(self._requests, self._images)

    async def pieces(self) -> AsyncIterator[Piece]:
        """Pieces of all choices as the engine makes them; ends when every choice has ended."""
        assert self._stream is not None, "start comes first"
        while (output := await self._next(self._stream)) is not None:
            now = time.monotonic()
            if self._first_token_at is None:
                self._first_token_at = now
            choice = self._choices[output.request_id]
            if choice.token_at is not None:
                self._service.metrics.between_tokens(now - choice.token_at)
            choice.token_at = now
            yield self._advance(output)

    async def _next(self, stream: TokenStream) -> TokenOutput | None:
        """The next token; None at the end. Raises ApiError once the request has had all its time."""
        limit = self._service.request_seconds
        if limit is None:
            return await anext(stream, None)
        left = self._accepted_at + limit - time.monotonic()
        try:
            async with asyncio.timeout(left):
                return await anext(stream, None)
        except TimeoutError as error:
            message = f"the answer was not whole within {limit:g} seconds, the time of a request on this server"
            raise ApiError(504, message, kind="server_error", code="request_timeout") from error

    def close(self) -> None:
        """Give up what still runs and hand in the request's record, once."""
        if self._closed or self._stream is None:
            return
        self._closed = True
        self._stream.close()
        first = None if self._first_token_at is None else self._first_token_at - self._accepted_at
        self._service.finished(
            RequestRecord(
                self._request_id,
                self.prompt_tokens,
                self.completion_tokens,
                tuple(choice.finish_reason or "abort" for choice in self._choices.values()),
                first,
                time.monotonic() - self._accepted_at,
            )
        )

    def _advance(self, output: TokenOutput) -> Piece:
        choice = self._choices[output.request_id]
        choice.num_generated += 1
        choice.reused = output.reused
        if output.finish_reason == "stop":
            choice.finish_reason = "stop"
            return Piece(choice.index, choice.text.finish(), None, "stop")
        text = choice.text.push(output.token_id)
        finish_reason: FinishReason | None = output.finish_reason
        if choice.text.stopped:
            finish_reason = "stop"
            assert self._stream is not None
            self._stream.cancel((output.request_id,))
        elif finish_reason is not None:
            text += choice.text.finish()
            if choice.text.stopped:  # what was held back completed a stop string
                finish_reason = "stop"
        choice.finish_reason = finish_reason
        return Piece(choice.index, text, output, finish_reason)


def by_choice(pieces: Sequence[Piece], num_choices: int) -> list[list[Piece]]:
    """The pieces of each choice in order; none is empty once a generation has ended."""
    own: list[list[Piece]] = [[] for _ in range(num_choices)]
    for piece in pieces:
        own[piece.choice].append(piece)
    return own


def sampling_params(
    fields: SamplingFields, *, max_tokens: int, logprobs: int | None, end_token_ids: Sequence[int], vocab_size: int
) -> tuple[SamplingParams, ...]:
    """One for each of the `n` choices; with a seed, choice i is what the seed + i would give alone."""
    ignore_eos = bool(fields.ignore_eos)
    stop_token_ids = tuple(fields.stop_token_ids or ()) + (() if ignore_eos else tuple(end_token_ids))
    params = SamplingParams(
        max_tokens=max_tokens,
        temperature=_given(fields.temperature, 1.0),
        top_p=_given(fields.top_p, 1.0),
        top_k=max(0, fields.top_k or 0),
        min_p=fields.min_p or 0.0,
        presence_penalty=fields.presence_penalty or 0.0,
        frequency_penalty=fields.frequency_penalty or 0.0,
        repetition_penalty=_given(fields.repetition_penalty, 1.0),
        logprobs=logprobs,
        stop_token_ids=tuple(dict.fromkeys(stop_token_ids)),
        ignore_eos=ignore_eos,
        logit_bias=_logit_bias(fields.logit_bias or {}, vocab_size),
    )
    return tuple(replace(params, seed=_seed(fields.seed, index)) for index in range(fields.n or 1))


def _logit_bias(given: Mapping[str, float], vocab_size: int) -> tuple[tuple[int, float], ...]:
    for token in given:
        if int(token) >= vocab_size:
            message = f"token {token} is outside the vocabulary of {vocab_size}"
            raise ApiError(400, message, param="logit_bias")
    return tuple((int(token), value) for token, value in given.items())


def _given(value: float | None, default: float) -> float:
    return default if value is None else value


def _seed(seed: int | None, index: int) -> int | None:
    """`seed + index`, wrapped into 64 bits with sign."""
    return None if seed is None else (seed + index + 2**63) % 2**64 - 2**63
