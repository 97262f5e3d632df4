"""Connections that cannot be held for nothing: limits on the head of a request, on idling and on not reading."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Any

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from day0.runtime.server.schema import ErrorBody, ErrorResponse

MAX_HEAD_BYTES = 64 * 2**10
"""Bytes of a request line with its headers."""
LINGER_SECONDS = 2.0
"""How long what a refused client still sends is read and dropped: a reset would take the answer from it."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that a connection may take for the head of its request, first byte or not, and for reading on where the
    buffers between it and us are full. All are told by the loop's monotonic clock."""

    head_seconds: float = 30.0
    reader_seconds: float = 30.0


class GuardedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 with `Patience`. A connection that is cut looks to the application like a client that left."""

    def __init__(self, *arguments: Any, patience: Patience, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._patience = patience
        self._head_timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._mind_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._stop_reader_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        self._mind_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._mind_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._reader_timer is None:
            self._reader_timer = self.loop.call_later(self._patience.reader_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_reader_timer()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, or has too large a head, with an error object; the connection ends."""
        cause = sys.exc_info()[1]  # uvicorn calls this while it handles h11's complaint, which knows the status
        status = cause.error_status_hint if isinstance(cause, h11.RemoteProtocolError) else 400
        large = status == 431
        text = f"the request line and headers have more than {MAX_HEAD_BYTES} bytes" if large else msg
        code = "headers_too_large" if large else "invalid_http"
        body = msgspec.json.encode(ErrorResponse(ErrorBody(text, "invalid_request_error", None, code)))
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        self._refused = True
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # else an answer is under way, which it would break
            for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def _mind_head(self) -> None:
        """A head is awaited from the connection's start, or the end of an answer, until it has come whole."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_head_timer()
        elif self._head_timer is None and not self._refused:
            self._head_timer = self.loop.call_later(self._patience.head_seconds, self._end_without_head)

    def _end_without_head(self) -> None:
        self._head_timer = None
        self.transport.abort()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_reader_timer(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None
