"""What every endpoint needs: worker, tokenizer, the model's name, metrics and log, and the rules of admission."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import CapacityLimiter, to_thread

from day0.errors import InputError
from day0.runtime.engine.worker import EngineWorker, NotAccepting, PromptImages, WorkerState
from day0.runtime.server.errors import ApiError, context_length_exceeded, not_supported, prompt_without_hope
from day0.runtime.server.images import Sight, takes_parts
from day0.runtime.server.metrics import Metrics, RequestRecord
from day0.runtime.server.schema import Message, TemplateFields
from day0.runtime.server.styles import Styles

if TYPE_CHECKING:
    from day0.runtime.tokenizer import Tokenizer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation as the model reads it; `images` are those among its tokens, with their places."""

    text: str
    ids: tuple[int, ...]
    images: PromptImages | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """One served model. `stall_seconds` is how long a step may take before the engine counts as stuck,
    `request_seconds` how long an answer may take in all."""

    worker: EngineWorker
    tokenizer: Tokenizer
    served_name: str
    metrics: Metrics
    log: Callable[[str], None]
    stall_seconds: float
    styles: Styles
    sight: Sight | None = None
    request_seconds: float | None = None
    started: float = field(default_factory=time.time)
    # A long prompt takes long to encode, so it leaves the event loop; one at a time, as the tokenizer keeps state.
    _tokenizing: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1))

    def unavailable(self) -> str | None:
        """Why no request can be served now; None where one can."""
        worker = self.worker
        if worker.state is not WorkerState.READY:
            return worker.state.value
        silent = time.monotonic() - worker.last_progress
        if worker.num_streaming and silent > self.stall_seconds:
            return f"unhealthy: no progress for {silent:.0f} seconds"
        return None

    def admit(self, model: str | None) -> None:
        """Refuse what is not for this model, and everything while no request can be served."""
        if model is not None and model != self.served_name:
            raise ApiError(
                404,
                f"the model '{model}' does not exist; this server has '{self.served_name}'",
                param="model",
                code="model_not_found",
            )
        reason = self.unavailable()
        if reason is not None:
            raise NotAccepting(f"the server takes no requests now: {reason}")

    async def text_ids(self, text: str, *, add_special_tokens: bool, to_run: bool = True) -> tuple[int, ...]:
        """The ids of a prompt; one `to_run` is refused unread where it cannot fit the context."""

        def encode() -> list[int]:
            if to_run:
                self._refuse_hopeless(text, param="prompt")
            return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)

        return tuple(await self.beside(encode, param="prompt"))

    async def chat_prompt(
        self, fields: TemplateFields, tools: Sequence[Mapping[str, Any]] = (), *, to_run: bool = True
    ) -> ChatPrompt:
        """The prompt that the model's chat template makes of a conversation and of the tools it is offered."""
        refuse_unsupported_messages(fields.messages)
        if not self.tokenizer.has_chat_template:
            raise ApiError(
                400,
                f"the model '{self.served_name}' has no chat template, so it cannot take messages; "
                "use /v1/completions with a prompt",
                param="messages",
                code="no_chat_template",
            )
        arguments = fields.template_arguments()
        if clash := sorted({"add_generation_prompt", "tools"} & arguments.keys()):
            message = f"{', '.join(clash)}: a field of the request itself, not an argument of the template"
            raise ApiError(400, message, param="chat_template_kwargs")
        urls = [url for message in fields.messages for url in message.image_urls()]
        if urls and self.sight is None:
            raise ApiError(400, f"the model '{self.served_name}' takes no images", param="messages", code="no_vision")
        mark, in_parts = self.sight.placeholder if self.sight else "", takes_parts(self.tokenizer.chat_template)
        messages = [message.for_template(mark, in_parts=in_parts) for message in fields.messages]

        def encode() -> ChatPrompt:
            render = partial(
                self.tokenizer.chat_text, messages, add_generation_prompt=fields.add_generation_prompt, **arguments
            )
            text = render(tools=list(tools) or None)
            if tools and text == render():
                message = "the model's chat template shows it no tools"
                raise ApiError(400, message, param="tools", code="no_tools_in_template")
            if to_run:
                self._refuse_hopeless(text, param="messages")
            ids = tuple(self.tokenizer.encode(text))
            if self.sight is None or not urls:
                return ChatPrompt(text, ids)
            images = self.sight.prepare(urls)
            places = self.sight.expand(ids, images)
            return ChatPrompt(text, places.token_ids, PromptImages(places, tuple(images)))

        return await self.beside(encode, param="messages")

    async def beside(self, work: Callable[[], T], *, param: str) -> T:
        """The result of work with the tokenizer, done beside the event loop."""
        try:
            return await to_thread.run_sync(work, limiter=self._tokenizing)
        except InputError as error:
            raise ApiError(400, str(error), param=param) from error

    def _refuse_hopeless(self, text: str, *, param: str) -> None:
        """A text of megabytes would keep the tokenizer from everybody else for a minute, only to be too long."""
        least, limit = len(text) // self.tokenizer.longest_token, self.worker.max_model_len
        if least > limit:
            raise prompt_without_hope(len(text), least, limit, param)

    def output_budget(self, prompt_tokens: int, wanted: int | None, *, param: str) -> int:
        """How many tokens may be generated: those wanted, or all that fit where nothing was said."""
        limit = self.worker.max_model_len
        if prompt_tokens == 0:
            raise ApiError(400, "the prompt is empty", param=param, code="empty_prompt")
        if prompt_tokens + (wanted or 1) > limit:
            raise context_length_exceeded(prompt_tokens, wanted or 1, limit, param)
        return wanted or limit - prompt_tokens

    def finished(self, record: RequestRecord) -> None:
        self.metrics.observe(record)
        self.log(record.line())


def refuse_unsupported_messages(messages: Sequence[Message]) -> None:
    for index, message in enumerate(messages):
        name = message.unsupported()
        if name is not None:
            raise not_supported(f"messages[{index}].{name}")
