"""What happens to every HTTP request before it is understood: an id, the key, limits on its size and its arrival."""

from __future__ import annotations

import asyncio
import hmac
import re
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from day0.runtime.server.errors import ApiError

OPEN_PATHS = frozenset({"/", "/health", "/metrics", "/version"})
"""What a load balancer or a scraper reads without a key, and the page that asks for one."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class Guard:
    """Outermost layer of the application. Plain ASGI, so that a client's disconnect reaches the handler unchanged."""

    def __init__(self, app: ASGIApp, *, api_key: str | None, max_body_bytes: int, body_seconds: float) -> None:
        self._app = app
        self._expected = f"Bearer {api_key}".encode() if api_key else None
        self._max_body_bytes = max_body_bytes
        self._body_seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = _request_id(headers.get("x-request-id", ""))
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        # All clients have one key, so the address tells them apart (behind a proxy on this host, what it forwards).
        state["client"] = (scope.get("client") or ("", 0))[0]

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        refusal = self._refusal(scope["path"], headers)
        if refusal is not None:
            await refusal.response()(scope, receive, send_with_id)
            return
        await self._app(scope, self._limited(receive), send_with_id)

    def _refusal(self, path: str, headers: Headers) -> ApiError | None:
        if self._expected is not None and path not in OPEN_PATHS:
            given = headers.get("authorization", "").encode("latin-1")  # the bytes as they came
            if not hmac.compare_digest(given, self._expected):
                return ApiError(401, "missing or wrong API key", param=None, code="invalid_api_key")
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._max_body_bytes:
            return self._too_large()
        return None

    def _limited(self, receive: Receive) -> Receive:
        """A body sent in chunks says its size only as it comes, and one that trickles in is not waited for."""
        received, whole = 0, False
        deadline = asyncio.get_running_loop().time() + self._body_seconds

        async def receive_limited() -> Message:
            nonlocal received, whole
            try:
                async with asyncio.timeout_at(None if whole else deadline):
                    message = await receive()
            except TimeoutError as error:
                seconds = f"{self._body_seconds:g} seconds"
                raise ApiError(408, f"the body did not come within {seconds}", code="body_timeout") from error
            whole = not message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > self._max_body_bytes:
                raise self._too_large()
            return message

        return receive_limited

    def _too_large(self) -> ApiError:
        return ApiError(413, f"the request body is larger than {self._max_body_bytes} bytes", code="body_too_large")


def _request_id(given: str) -> str:
    """The client's own id where it is short and plain, so that it can go into logs and headers; else a new one."""
    return given if _REQUEST_ID.fullmatch(given) else uuid4().hex
