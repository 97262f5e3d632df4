"""A server's life: bind, load while already answering /health, serve, drain on the first signal, end."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from day0.errors import EnvironmentFault, InputError
from day0.runtime.engine.worker import EngineWorker, WorkerState
from day0.runtime.server.protocol import MAX_HEAD_BYTES, GuardedProtocol, Patience

CONNECTION_BACKLOG = 2048
SEND_BUFFER_BYTES = 256 * 2**10
"""What the kernel keeps of an answer for a client that does not read."""
SLOW_READER_SECONDS = 10
"""How long the end waits for clients to read the last of their answers, after the engine is done."""


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to `host` and `port` (0: any free one). It listens once the server runs, so until then clients
    are refused and not kept waiting."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise EnvironmentFault(
            f"cannot resolve host {host}: {error.strerror}", hint="give --host an address"
        ) from error
    except UnicodeError as error:
        raise InputError(f"{host!r} is no name of a host", where="--host", hint="give an address") from error
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)  # taken over by every connection
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise _cannot_listen(host, port, error) from error
    return listener


def _cannot_listen(host: str, port: int, error: OSError) -> EnvironmentFault:
    return EnvironmentFault(
        f"cannot listen on {host} port {port}: {error.strerror}",
        hint="choose another port with --port, or stop what listens there",
    )


class HttpServer:
    """Runs an application and its worker until it is told to stop.

    `log` takes lines for people. `end_at_once` is what a second signal does; it does not return.
    """

    def __init__(
        self,
        app: ASGIApp,
        worker: EngineWorker,
        listener: socket.socket,
        *,
        log: Callable[[str], None],
        end_at_once: Callable[[], None],
        patience: Patience = Patience(),
    ) -> None:
        self._worker = worker
        self._listener = listener
        self._log = log
        self._end_at_once = end_at_once
        self._stopping = asyncio.Event()
        self._server = _Uvicorn(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                http=cast(type[asyncio.Protocol], partial(GuardedProtocol, patience=patience)),
                h11_max_incomplete_event_size=MAX_HEAD_BYTES,
                server_header=False,
                timeout_graceful_shutdown=SLOW_READER_SECONDS,
            )
        )

    async def run(self, *, signals: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT)) -> None:
        """Returns when the server has ended; `worker.failure` says whether that was in good order."""
        try:
            self._listener.listen(CONNECTION_BACKLOG)
        except OSError as error:  # another server bound the port at the same time and listens already
            host, port = self._listener.getsockname()[:2]
            raise _cannot_listen(host, port, error) from error
        loop = asyncio.get_running_loop()
        for number in signals:
            loop.add_signal_handler(number, self._on_signal)
        self._worker.start()
        serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        watching = asyncio.create_task(self._watch())
        try:
            await serving
        finally:
            watching.cancel()
            self._worker.stop()
            for number in signals:
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Begin to drain: those in flight finish, new ones get 503, then the server ends."""
        self._stopping.set()
        self._worker.drain()

    def _on_signal(self) -> None:
        if self._stopping.is_set():
            self._end_at_once()
        self._log(f"stopping: {self._worker.num_streaming} in flight will finish; a second signal ends at once")
        self.stop()

    async def _watch(self) -> None:
        worker = self._worker
        ready = asyncio.create_task(worker.ready.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((ready, stopping), return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        stopping.cancel()
        if worker.ready.is_set() and worker.state is not WorkerState.FAILED:
            self._log(f"ready on {self._address()}")
            await worker.ended.wait()
            if worker.state is WorkerState.FAILED:
                if isinstance(worker.failure, EnvironmentFault):
                    self._log(f"the engine has ended: {worker.failure}")
                    self._server.should_exit = True
                    return
                self._log(worker.failure_traceback)
                self._log("the engine has failed; /health answers 503 until this server is stopped")
                await self._stopping.wait()
        self._server.should_exit = True

    def _address(self) -> str:
        host, port = self._listener.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Uvicorn(uvicorn.Server):
    """uvicorn stops listening at the first signal; ours goes on, to answer 503, until the engine is drained."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
