"""The JSON of tools and of the form of an answer."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType
from pydantic import BaseModel, ConfigDict, Field

MAX_TOOLS = 128

ToolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class StrictModel(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class FunctionDefinition(StrictModel):
    """`parameters` is a JSON schema; without one the function takes nothing."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def schema_of_parameters(self) -> dict[str, Any]:
        return self.parameters or {"type": "object", "properties": {}, "additionalProperties": False}


class Tool(StrictModel):
    type: Literal["function"]
    function: FunctionDefinition

    def for_template(self) -> dict[str, Any]:
        """As chat templates expect it, which is as it was sent."""
        return self.model_dump(exclude_none=True)


class FunctionName(StrictModel):
    name: ToolName


class NamedTool(StrictModel):
    type: Literal["function"]
    function: FunctionName


ToolChoice = Literal["none", "auto", "required"] | NamedTool


class CalledFunction(StrictModel):
    """`arguments` is JSON text, as the model's answer had it."""

    name: str
    arguments: str = "{}"


class CallOfBefore(StrictModel):
    """A call in an earlier turn of the assistant."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None

    def for_template(self) -> dict[str, Any]:
        """Templates want the arguments as an object, and write what is none as it stands."""
        arguments: Any = self.function.arguments
        with suppress(ValueError, RecursionError):
            arguments = json.loads(arguments or "{}")
        return {
            "id": self.id or "",
            "type": self.type,
            "function": {"name": self.function.name, "arguments": arguments},
        }


class JsonSchemaFormat(BaseModel):
    """`strict` changes nothing: an answer is always held to the schema."""

    model_config = ConfigDict(strict=True, extra="forbid")

    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    body: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(StrictModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class FunctionCall(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    id: str
    function: FunctionCall
    type: str = "function"


class ToolCallDelta(msgspec.Struct, frozen=True):
    """A call is streamed whole, in one delta."""

    index: int
    id: str | UnsetType = UNSET
    function: FunctionCall | UnsetType = UNSET
    type: str = "function"
