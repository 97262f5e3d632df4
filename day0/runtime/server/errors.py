"""Every way a request can fail, as an OpenAI error object with its HTTP status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi import Response
from fastapi.exceptions import HTTPException, RequestValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException

from day0.errors import Day0Error, InputError
from day0.runtime.engine.sequence import NotFinite, QueueFull
from day0.runtime.engine.worker import EngineFailed, NotAccepting
from day0.runtime.server.schema import ErrorBody, ErrorResponse

INVALID_REQUEST = "invalid_request_error"
RETRY_AFTER_SECONDS = 1


class ApiError(HTTPException):
    """An answer other than 200; `kind` and `code` are the words OpenAI's clients look for."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = INVALID_REQUEST,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, _utf8(message), dict(headers or {}))
        self.body = ErrorBody(_utf8(message), kind, _utf8(param) if param else None, code)

    def response(self) -> Response:
        return Response(self.encoded(), self.status_code, self.headers, "application/json")

    def encoded(self) -> bytes:
        return msgspec.json.encode(ErrorResponse(self.body))


def not_supported(param: str) -> ApiError:
    return ApiError(400, f"'{param}' is not supported yet by this server", param=param, code="not_supported")


def context_length_exceeded(prompt: int, wanted: int, limit: int, param: str) -> ApiError:
    """`prompt` and `wanted` tokens together do not fit a context of `limit`."""
    return ApiError(
        400,
        f"the prompt has {prompt} tokens and {wanted} more were asked for, together {prompt + wanted}; "
        f"this server's context length is {limit} tokens",
        param=param,
        code="context_length_exceeded",
    )


def prompt_without_hope(characters: int, least: int, limit: int, param: str) -> ApiError:
    """A text that has `least` tokens or more, told by its `characters` alone."""
    return ApiError(
        400,
        f"the prompt has {characters} characters, which are {least} tokens or more; "
        f"this server's context length is {limit} tokens",
        param=param,
        code="context_length_exceeded",
    )


def as_api_error(error: Exception) -> ApiError:
    """What a client is told of `error`; of a defect only that there was one, the rest is for the log."""
    match error:
        case ApiError():
            return error
        case RequestValidationError():
            return _of_validation(error.errors())
        case StarletteHTTPException():
            return ApiError(error.status_code, str(error.detail), headers=error.headers)
        case QueueFull():
            retry = {"Retry-After": str(RETRY_AFTER_SECONDS)}
            return ApiError(429, str(error), kind="rate_limit_error", code="rate_limit_exceeded", headers=retry)
        case NotAccepting():
            return ApiError(503, str(error), kind="server_error", code="unavailable")
        case EngineFailed():
            return ApiError(500, str(error), kind="server_error", code="engine_failed")
        case NotFinite():
            return ApiError(500, str(error), kind="server_error", code="not_finite")
        case InputError():
            return ApiError(400, str(error), param=error.where or None)
        case Day0Error():
            return ApiError(500, str(error), kind="server_error")
        case _:
            return ApiError(500, f"internal error ({type(error).__name__})", kind="server_error", code="internal_error")


def _of_validation(errors: Sequence[Any]) -> ApiError:
    """One complaint about a request body, in OpenAI's words where they have some.

    A value that fits no arm of a union gives one complaint for each; the one that got furthest is the one to tell.
    """
    first = max(errors, key=lambda error: len(error["loc"]))
    param = _param(first["loc"][1:])
    if first["type"] == "json_invalid":
        reason = first.get("ctx", {}).get("error", "")
        return ApiError(400, f"the body is not valid JSON: {reason} at byte {first['loc'][-1]}", code="invalid_json")
    if first["type"] == "extra_forbidden":
        return ApiError(400, f"unrecognized request argument supplied: {param}", param=param, code="unknown_parameter")
    if first["type"] == "missing":
        where = f"missing required parameter: '{param}'" if param else "the request has no JSON body"
        return ApiError(400, where, param=param or None, code="missing_required_parameter")
    subject = f"invalid value for '{param}'" if param else "invalid request body"
    return ApiError(
        400, f"{subject}: {first['msg'].removeprefix('Value error, ')}", param=param or None, code="invalid_value"
    )


def _utf8(text: str) -> str:
    """`text` with a question mark for every lone surrogate that a broken request put into it."""
    return text.encode("utf-8", "replace").decode()


def _param(location: Sequence[str | int]) -> str:
    """`messages[0].content` from ("messages", 0, "content", "str"): the path up to the first name of a union arm."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part not in ("str", "int", "float", "bool"):
            path += f".{part}" if path else part
        else:
            break
    return path
