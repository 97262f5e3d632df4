"""Which tools a request offers, and whether the answer may, must or must not call them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from day0.runtime.server.errors import ApiError
from day0.runtime.server.schema import ChatRequest
from day0.runtime.server.schema_tools import NamedTool
from day0.runtime.server.structured import schema_of_calls
from day0.runtime.server.styles import Styles


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """`for_template` are the tools the model is told of. `schemas` are those whose calls are read (None: none are);
    `forced` is the schema of the list of calls that the answer must be."""

    for_template: tuple[dict[str, Any], ...] = ()
    schemas: Mapping[str, Mapping[str, Any]] | None = None
    forced: Mapping[str, Any] | None = None


def offered_tools(body: ChatRequest, styles: Styles) -> OfferedTools:
    choice = body.tool_choice
    if not body.tools:
        if choice not in (None, "none", "auto"):
            raise ApiError(400, "tool_choice needs tools", param="tool_choice")
        return OfferedTools()
    functions = [tool.function for tool in body.tools]
    names = [function.name for function in functions]
    if len(set(names)) < len(names):
        raise ApiError(400, "two tools have the same name", param="tools")
    shown = tuple(tool.for_template() for tool in body.tools)
    if choice == "none":
        return OfferedTools(shown)
    schemas = {function.name: function.schema_of_parameters() for function in functions}
    if isinstance(choice, NamedTool):
        wanted = choice.function.name
        if wanted not in names:
            raise ApiError(400, f"no tool is named '{wanted}'", param="tool_choice")
        named = [function for function in functions if function.name == wanted]
        return OfferedTools(shown, schemas, schema_of_calls(named, at_most=1))
    if choice == "required":
        at_most = 1 if body.parallel_tool_calls is False else None
        return OfferedTools(shown, schemas, schema_of_calls(functions, at_most=at_most))
    if not styles.reads_calls:
        raise ApiError(
            400,
            "the model's chat template shows no style of tool calls that is known here, so calls could not be read out "
            "of its answers; start the server with --tool-call-parser, or give tool_choice required",
            param="tools",
            code="no_tool_parser",
        )
    return OfferedTools(shown, schemas)
