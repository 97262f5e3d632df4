"""What stands between the marks of a tool call, style by style: name and arguments, or None for what is no call."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from day0.runtime.server.tools.parts import Call

Schemas = Mapping[str, Mapping[str, Any]]
"""The parameters' JSON schema of every tool that was offered, by name: it says what untyped values are."""
ParseBody = Callable[[str, Schemas], Call | None]

_DEEPSEEK_FENCED = re.compile(
    r"\s*(?:function)?<｜tool▁sep｜>(?P<name>[^\n]+)\n```json\n(?P<arguments>.*?)\n?```\s*", re.S
)
_DEEPSEEK_PLAIN = re.compile(r"\s*(?P<name>[^\n]+?)<｜tool▁sep｜>(?P<arguments>.*)", re.S)
_DSML_INVOKE = re.compile(r'\s*name="(?P<name>[^"]+)"\s*>(?P<parameters>.*)', re.S)
_DSML_PARAMETER = re.compile(
    r'<｜DSML｜parameter name="(?P<key>[^"]+)"(?: string="(?P<string>true|false)")?\s*>'
    r"(?P<value>.*?)</｜DSML｜parameter>",
    re.S,
)
_KIMI = re.compile(
    r"\s*(?P<id>(?:functions\.)?(?P<name>[^\s:]+)(?::\d+)?)\s*<\|tool_call_argument_begin\|>(?P<arguments>.*)", re.S
)
_GLM_PAIR = re.compile(r"\s*<arg_key>(?P<key>.*?)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>\s*", re.S)
_XML = re.compile(r"\s*<function=(?P<name>[^>\n]+)>(?P<parameters>.*?)(?:</function>)?\s*", re.S)
_XML_PAIR = re.compile(r"<parameter=(?P<key>[^>\n]+)>\n?(?P<value>.*?)\n?</parameter>", re.S)


def json_body(text: str, schemas: Schemas) -> Call | None:
    """Hermes and Qwen: an object with name and arguments."""
    del schemas
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", {})
    return _checked(value["name"], arguments if isinstance(arguments, str) else _text(arguments))


def xml_body(text: str, schemas: Schemas) -> Call | None:
    """Qwen3-Coder and later: a function with parameters as elements, whose types only the schema knows."""
    found = _XML.fullmatch(text)
    if found is None:
        return None
    pairs = [(pair["key"], pair["value"]) for pair in _XML_PAIR.finditer(found["parameters"])]
    return _of_pairs(found["name"].strip(), pairs, schemas)


def glm_body(text: str, schemas: Schemas) -> Call | None:
    """GLM-4.5 and later: the name, then pairs of key and value."""
    name, opening, rest = text.partition("<arg_key>")
    pairs = _GLM_PAIR.findall(opening + rest)
    if len(name.split()) != 1 or _GLM_PAIR.sub("", opening + rest):
        return None
    return _of_pairs(name.strip(), [(key.strip(), value) for key, value in pairs], schemas)


def deepseek_body(text: str, schemas: Schemas) -> Call | None:
    """DeepSeek V3 and R1 (the arguments in a fence) and V3.1 (as they are)."""
    del schemas
    found = _DEEPSEEK_FENCED.fullmatch(text) or _DEEPSEEK_PLAIN.fullmatch(text)
    return None if found is None else _checked(found["name"].strip(), found["arguments"].strip())


def dsml_body(text: str, schemas: Schemas) -> Call | None:
    """DeepSeek V3.2 and later: an invocation with parameters, each of which says whether it is a string."""
    found = _DSML_INVOKE.fullmatch(text)
    if found is None:
        return None
    own = schemas.get(found["name"], {})
    arguments: dict[str, Any] = {}
    for pair in _DSML_PARAMETER.finditer(found["parameters"]):
        is_text = pair["string"] == "true"
        arguments[pair["key"]] = pair["value"] if is_text else _typed(pair["key"], pair["value"], own)
    return Call(found["name"], _text(arguments))


def kimi_body(text: str, schemas: Schemas) -> Call | None:
    """Kimi K2: an id that holds the name, then the arguments."""
    del schemas
    found = _KIMI.fullmatch(text)
    return None if found is None else _checked(found["name"], found["arguments"].strip(), found["id"])


def _checked(name: str, arguments: str, own_id: str | None = None) -> Call | None:
    """Arguments as the model wrote them, where they are an object in JSON."""
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return Call(name, arguments or "{}", own_id) if isinstance(value, dict) else None


def _of_pairs(name: str, pairs: list[tuple[str, str]], schemas: Schemas) -> Call:
    own = schemas.get(name, {})
    return Call(name, _text({key: _typed(key, value, own) for key, value in pairs}))


def _typed(key: str, value: str, schema: Mapping[str, Any]) -> Any:
    """A value without quotes: text where the schema says so, else what JSON makes of it, else text."""
    properties = schema.get("properties")
    own = properties.get(key) if isinstance(properties, Mapping) else None
    if isinstance(own, Mapping) and own.get("type") == "string":
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
