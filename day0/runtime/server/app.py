"""The HTTP application: endpoints, the guard in front of them, and the one place where exceptions become answers."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import day0
from day0.errors import Day0Error
from day0.runtime.engine.worker import EngineWorker, NotAccepting
from day0.runtime.server.chat import chat_router
from day0.runtime.server.completions import completions_router
from day0.runtime.server.errors import as_api_error
from day0.runtime.server.guard import Guard
from day0.runtime.server.images import Sight
from day0.runtime.server.metrics import Metrics
from day0.runtime.server.page import page_router
from day0.runtime.server.service import Service
from day0.runtime.server.status import status_router
from day0.runtime.server.styles import Styles
from day0.runtime.server.tokenize import tokenize_router

if TYPE_CHECKING:
    from day0.runtime.tokenizer import Tokenizer

MAX_BODY_BYTES = 32 * 2**20
BODY_SECONDS = 60.0
"""How long a client may take to send what it asks."""
MAX_LOGGED = 500
"""Characters of a message that go into the log."""
STALL_SECONDS = 300.0
# Beside what it says, this keeps FastAPI from documenting its own 422, which is never sent.
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "The request cannot be served: an OpenAI error object."},
    "5XX": {"description": "The server cannot serve: an OpenAI error object, or its state from /health."},
}


def create_app(
    worker: EngineWorker,
    tokenizer: Tokenizer,
    served_name: str,
    *,
    log: Callable[[str], None],
    api_key: str | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
    body_seconds: float = BODY_SECONDS,
    stall_seconds: float = STALL_SECONDS,
    tool_call_parser: str | None = None,
    reasoning_parser: str | None = None,
    sight: Sight | None = None,
    request_seconds: float | None = None,
    command: str | None = None,
) -> FastAPI:
    """The application for one worker, which may still be loading. `log` is given one line per request,
    `command` is shown as what started it.

    Raises InputError for a parser that nobody has.
    """
    styles = Styles.of(tokenizer.chat_template, tools=tool_call_parser, reasoning=reasoning_parser)
    metrics = Metrics(worker, served_name)
    service = Service(worker, tokenizer, served_name, metrics, log, stall_seconds, styles, sight, request_seconds)
    # The pages at docs_url load scripts from elsewhere, so they stay off; the schema itself is at /openapi.json.
    app = FastAPI(title="day0", version=day0.__version__, docs_url=None, redoc_url=None)
    for router in (status_router, completions_router, chat_router, tokenize_router):
        app.include_router(router(service), responses=ERROR_RESPONSES)

    app.include_router(page_router(command), responses=ERROR_RESPONSES)

    def answer_error(request: Request, error: Exception) -> Response:
        told = as_api_error(error)
        log(f"request {request.state.request_id} answered {told.status_code}: {_one_line(told.body.message)}")
        return told.response()

    for kind in (Day0Error, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, answer_error)
    app.add_middleware(_DefectBarrier, answer_error=answer_error, log=log)
    app.add_middleware(Guard, api_key=api_key, max_body_bytes=max_body_bytes, body_seconds=body_seconds)
    return app


def _one_line(text: str) -> str:
    """A message as a line of the log: clients wrote parts of it, and must not forge lines or fill the disk."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text[:MAX_LOGGED])


class _DefectBarrier:
    """A defect of ours becomes a 500 in the API's own form, and its traceback a part of the log.

    FastAPI's handler for `Exception` answers too, but raises on, and then the server cuts the connection.
    """

    def __init__(
        self, app: ASGIApp, *, answer_error: Callable[[Request, Exception], Response], log: Callable[[str], None]
    ) -> None:
        self._app = app
        self._answer_error = answer_error
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def send_noting(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, send_noting)
        except asyncio.CancelledError:
            # The server ends and waited long enough for this client to send its request or to read its answer.
            self._log(f"request {scope['state']['request_id']} was cut off")
            if not started:
                await self._answer_error(Request(scope), NotAccepting("the server stopped"))(scope, receive, send)
        except Exception as error:
            if started:
                raise  # a part of the answer is out; a cut connection says that the rest is missing
            self._log("".join(traceback.format_exception(error)))
            await self._answer_error(Request(scope), error)(scope, receive, send)
