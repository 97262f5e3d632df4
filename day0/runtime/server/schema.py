"""The JSON of the HTTP API: OpenAI's field names, spelled in the `schema*.py` files, nowhere else.

Requests are pydantic models, validated strictly: a wrong type is an error, not a conversion. A field that nobody
knows is refused by name, as OpenAI's own server does, since a misspelt `max_token` must not be dropped in silence.
Fields that change nothing about the answer are accepted and left alone (`BookkeepingFields`); fields that would
change it and that this server cannot honour yet are named by `unsupported`.
Responses are msgspec structs, because one is encoded per streamed token; UNSET fields are left out, None is null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType
from pydantic import Field

from day0.runtime.server.schema_message import Message
from day0.runtime.server.schema_tools import (
    MAX_TOOLS,
    ResponseFormat,
    StrictModel,
    Tool,
    ToolCall,
    ToolCallDelta,
    ToolChoice,
)

MAX_CHOICES = 128
MAX_SEQUENCES = 1024
"""Of one request: what the engine's queue holds. More would be told to come again, for ever."""
MAX_STOP_STRINGS = 16
MAX_STOP_TOKENS = 1024
"""The engine looks through them at every token, for all requests."""
MAX_LOGPROBS = 20
LOWEST_LOGPROB = -9999.0
"""What stands for a log probability of minus infinity, which JSON cannot say (OpenAI's own convention)."""

TokenId = Annotated[int, Field(ge=0)]
BiasedToken = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]
StopString = Annotated[str, Field(min_length=1)]
TemplateValue = bool | int | float | str | None


class BookkeepingFields(StrictModel):
    """Fields for OpenAI's own books; they say nothing about the text that is wanted."""

    user: str | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None


class StreamOptions(StrictModel):
    include_usage: bool = False
    include_obfuscation: bool = False


class SamplingFields(BookkeepingFields):
    """What both completion endpoints take. `top_k` and the rest of the last block are vLLM's additions."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2.0, le=2.0)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2.0, le=2.0)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: StopString | Annotated[list[StopString], Field(max_length=MAX_STOP_STRINGS)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    logit_bias: dict[BiasedToken, Annotated[float, Field(ge=-100.0, le=100.0)]] | None = None

    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0.0, le=10.0)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_STOP_TOKENS)] | None = None
    ignore_eos: bool | None = None

    NOT_YET: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    """Fields this server cannot honour, with the values that ask for nothing (null always does)."""

    def unsupported(self) -> str | None:
        """The first field that asks for something this server does not do yet."""
        for name, harmless in self.NOT_YET.items():
            value = getattr(self, name)
            if value is not None and value not in harmless:
                return name
        return None

    def stop_strings(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def wants_usage_chunk(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionRequest(SamplingFields):
    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=MAX_SEQUENCES)]
        | Annotated[list[TokenId], Field(min_length=1)]
        | Annotated[list[Annotated[list[TokenId], Field(min_length=1)]], Field(min_length=1, max_length=MAX_SEQUENCES)]
    )
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None
    add_special_tokens: bool = True

    NOT_YET: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **SamplingFields.NOT_YET, "echo": (False,), "suffix": ("",), "best_of": (1,),
    }  # fmt: skip

    def prompts(self) -> list[str | list[int]]:
        """One entry per prompt: a text, or token ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if self.prompt and isinstance(self.prompt[0], int):
            return [self.prompt]  # a first entry that is an id makes all of them ids
        return list(self.prompt)  # type: ignore[arg-type]


class TemplateFields(StrictModel):
    """How messages become a prompt."""

    messages: Annotated[list[Message], Field(min_length=1)]
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, TemplateValue] | None = None

    def template_arguments(self) -> dict[str, Any]:
        """Arguments for the chat template beside the messages; one that a template does not read changes nothing."""
        return dict(self.chat_template_kwargs or {})


class ChatRequest(SamplingFields, TemplateFields):
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    reasoning_effort: str | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    functions: list[dict[str, Any]] | None = None
    function_call: str | dict[str, Any] | None = None
    modalities: list[str] | None = None
    audio: dict[str, Any] | None = None
    prediction: dict[str, Any] | None = None
    verbosity: str | None = None
    web_search_options: dict[str, Any] | None = None

    NOT_YET: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **SamplingFields.NOT_YET, "functions": ([],), "function_call": ("none", "auto"),
        "modalities": (["text"], []), "audio": (), "prediction": (), "verbosity": ("medium",),
        "web_search_options": (),
    }  # fmt: skip

    def unsupported(self) -> str | None:
        for index, message in enumerate(self.messages):
            name = message.unsupported()
            if name is not None:
                return f"messages[{index}].{name}"
        return super().unsupported()

    def template_arguments(self) -> dict[str, Any]:
        effort = {} if self.reasoning_effort is None else {"reasoning_effort": self.reasoning_effort}
        return effort | super().template_arguments()


class TokenizeRequest(StrictModel):
    """Either a `prompt` or `messages`."""

    model: str | None = None
    prompt: str | None = None
    add_special_tokens: bool = True
    messages: Annotated[list[Message], Field(min_length=1)] | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, TemplateValue] | None = None
    return_token_strs: bool = False


class DetokenizeRequest(StrictModel):
    model: str | None = None
    tokens: list[TokenId]


class ErrorBody(msgspec.Struct, frozen=True):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorResponse(msgspec.Struct, frozen=True):
    error: ErrorBody


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """`cached_tokens` of the prompt's were not computed but found in the cache."""

    cached_tokens: int


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """Parallel lists, one entry per token; `text_offset` counts characters of the choice's text."""

    tokens: Sequence[str]
    token_logprobs: Sequence[float]
    top_logprobs: Sequence[dict[str, float]]
    text_offset: Sequence[int]


class CompletionChoice(msgspec.Struct, frozen=True):
    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None


class CompletionResponse(msgspec.Struct, frozen=True):
    """A whole completion, and each chunk of a streamed one."""

    id: str
    created: int
    model: str
    choices: Sequence[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET
    object: str = "text_completion"


class TopLogprob(msgspec.Struct, frozen=True):
    """`bytes` is null for a token that is not whole UTF-8 by itself."""

    token: str
    logprob: float
    bytes: Sequence[int] | None


class ChatTokenLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: Sequence[int] | None
    top_logprobs: Sequence[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True):
    content: Sequence[ChatTokenLogprob]


class ChatAnswer(msgspec.Struct, frozen=True):
    """`content` is null in an answer of nothing but calls."""

    content: str | None
    role: str = "assistant"
    refusal: str | None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: Sequence[ToolCall] | UnsetType = UNSET


class ChatChoice(msgspec.Struct, frozen=True):
    index: int
    message: ChatAnswer
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None


class ChatResponse(msgspec.Struct, frozen=True):
    id: str
    created: int
    model: str
    choices: Sequence[ChatChoice]
    usage: Usage
    object: str = "chat.completion"


class ChatDelta(msgspec.Struct, frozen=True):
    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: Sequence[ToolCallDelta] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None


class ChatChunk(msgspec.Struct, frozen=True):
    id: str
    created: int
    model: str
    choices: Sequence[ChatChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    object: str = "chat.completion.chunk"


class ModelCard(msgspec.Struct, frozen=True):
    """`max_model_len` is null until the model is loaded."""

    id: str
    created: int
    root: str
    max_model_len: int | None
    object: str = "model"
    owned_by: str = "day0"


class ModelList(msgspec.Struct, frozen=True):
    data: Sequence[ModelCard]
    object: str = "list"


class HealthResponse(msgspec.Struct, frozen=True):
    status: str


class VersionResponse(msgspec.Struct, frozen=True):
    version: str


class TokenizeResponse(msgspec.Struct, frozen=True):
    tokens: Sequence[int]
    count: int
    max_model_len: int
    token_strs: Sequence[str] | None = None


class DetokenizeResponse(msgspec.Struct, frozen=True):
    prompt: str
