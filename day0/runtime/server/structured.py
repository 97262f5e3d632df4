"""The forms an answer can be held to, as grammars for llguidance: an object, a JSON schema, a list of calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from day0.runtime.server.errors import ApiError
from day0.runtime.server.grammar_check import complaint
from day0.runtime.server.schema_tools import FunctionDefinition, ResponseFormat

ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
# A space, or a line break and an indent: every usual layout, and an end to a model that writes only spaces.
_WHITE_SPACE = {"x-guidance": {"whitespace_pattern": " ?|\\n[ \\t]{0,24}"}}
_CHILDREN = ("properties", "$defs", "definitions", "patternProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_DEEPEST = 64


def schema_of_format(form: ResponseFormat | None) -> Mapping[str, Any] | None:
    """The schema of a `response_format`; None where the answer is free text."""
    if form is None:
        return None
    if form.type != "json_schema" and form.json_schema is not None:
        raise ApiError(400, "json_schema is for type json_schema", param="response_format.json_schema")
    if form.type == "text":
        return None
    if form.type == "json_object":
        return ANY_OBJECT
    if form.json_schema is None or form.json_schema.body is None:
        where = "response_format.json_schema.schema"
        raise ApiError(400, f"missing required parameter: '{where}'", param=where, code="missing_required_parameter")
    return form.json_schema.body


def schema_of_calls(functions: Sequence[FunctionDefinition], *, at_most: int | None) -> dict[str, Any]:
    """A list of one call or more of `functions`, each with arguments of its own schema."""
    definitions = {}
    calls = []
    for index, function in enumerate(functions):
        own = f"tool{index}"
        definitions[own] = _moved(function.schema_of_parameters(), f"#/$defs/{own}")
        arguments = {"$ref": f"#/$defs/{own}"}
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": function.name}, "arguments": arguments},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    most = {} if at_most is None else {"maxItems": at_most}
    return {"$defs": definitions, "type": "array", "minItems": 1, "items": {"anyOf": calls}, **most}


def json_grammar(schema: Mapping[str, Any], *, param: str, preface: str = "", rules: str = "") -> str:
    """The grammar of a JSON text that keeps `schema`, behind `preface`, whose rules are `rules`.

    Raises ApiError, naming the place in the schema, where llguidance cannot compile it, or not in time.
    """
    grammar = f"start: {preface} json\n{rules}json: %json {_text(schema)}\n"
    told = complaint(grammar, param=param)
    if told is not None:
        place, reason = _culprit(schema, "", _reason(told), param)
        raise ApiError(400, f"invalid schema at '{place or '/'}': {reason}", param=param, code="invalid_schema")
    return grammar


def _text(schema: Mapping[str, Any]) -> str:
    try:
        return json.dumps(schema | _WHITE_SPACE if isinstance(schema, dict) else {**schema, **_WHITE_SPACE})
    except RecursionError as error:
        raise ApiError(400, "the schema is nested too deeply", code="invalid_schema") from error


def _reason(message: str) -> str:
    """llguidance's message without its place in our grammar and the grammar's own lines."""
    text = message.partition("failed to compile JSON schema: ")[2] or message
    return " ".join(text.partition("\n   1 |")[0].split())


def _culprit(schema: Mapping[str, Any], place: str, reason: str, param: str, depth: int = 0) -> tuple[str, str]:
    """The smallest part of a broken schema that is broken by itself, as a JSON pointer, and what is wrong with it."""
    for name, part in _parts(schema):
        if depth < _DEEPEST and "$ref" not in (text := _text(part)):
            told = complaint(f"start: json\njson: %json {text}\n", param=param)
            if told is not None:
                return _culprit(part, f"{place}/{name}", _reason(told), param, depth + 1)
    return place, reason


def _parts(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key in _CHILDREN:
        children = schema.get(key)
        if isinstance(children, Mapping):
            yield from ((f"{key}/{name}", part) for name, part in children.items() if isinstance(part, Mapping))
    for key in _LISTS:
        items = schema.get(key)
        if isinstance(items, list):
            yield from ((f"{key}/{index}", part) for index, part in enumerate(items) if isinstance(part, Mapping))
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            yield key, schema[key]


def _moved(value: Any, root: str, depth: int = 0) -> Any:
    """A schema that has become a part of another one at `root`: its own references follow it there."""
    if depth > 10 * _DEEPEST:
        raise ApiError(400, "the schema is nested too deeply", param="tools", code="invalid_schema")
    if isinstance(value, dict):
        return {
            key: root + item[1:]
            if key == "$ref" and isinstance(item, str) and item.startswith("#")
            else _moved(item, root, depth + 1)
            for key, item in value.items()
        }
    return [_moved(item, root, depth + 1) for item in value] if isinstance(value, list) else value
