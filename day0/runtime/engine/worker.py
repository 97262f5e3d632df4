"""The thread that owns an engine: asyncio code hands it requests and is handed tokens, and never touches the engine.

Everything crosses by message. Commands go in through a queue, read between two steps; outputs come back as one
callback per step on the event loop. So the engine needs no lock, and a request that is given up is out of the batch
before the next step.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING

from day0.errors import Day0Error, EnvironmentFault, InputError
from day0.runtime.batch import ImageSpan, Request, TokenOutput
from day0.runtime.engine.sequence import NotFinite
from day0.runtime.vision.encoder import ImageEncoder
from day0.runtime.vision.prompt import image_spans

if TYPE_CHECKING:
    from day0.runtime.engine.engine import Engine, EngineStats
    from day0.runtime.vision.preprocess import ImageInput
    from day0.runtime.vision.prompt import ExpandedPrompt


class WorkerState(StrEnum):
    """Where a worker is in its life; only READY takes requests."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"
    FAILED = "unhealthy"


class NotAccepting(EnvironmentFault):
    """The worker takes no requests now: it loads, drains, has stopped or has failed."""


class EngineFailed(EnvironmentFault):
    """The engine raised while this request was in flight; the worker keeps the traceback."""


@dataclass(frozen=True, slots=True)
class PromptImages:
    """Images among the tokens of a prompt, not encoded yet: the tower is the engine's, and so its thread's."""

    places: ExpandedPrompt
    inputs: tuple[ImageInput, ...]


@dataclass(frozen=True, slots=True)
class _Add:
    requests: tuple[Request, ...]
    stream: TokenStream
    images: PromptImages | None


@dataclass(frozen=True, slots=True)
class _Abort:
    request_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Drain:
    pass


@dataclass(frozen=True, slots=True)
class _Stop:
    pass


@dataclass(frozen=True, slots=True)
class _Look:
    """Something that the engine needs may have gone: it is asked before the next step."""


_Command = _Look | _Add | _Abort | _Drain | _Stop


class TokenStream:
    """The tokens of the requests of one `open` call, in the order the engine made them. Lives on the event loop.

    Iteration ends when every request has finished, or raises where one cannot be answered. `close` gives up those
    that have not.
    """

    def __init__(self, requests: Sequence[Request], give_up: Callable[[tuple[str, ...]], None]) -> None:
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unfinished = {request.id for request in requests}
        self._arrived: asyncio.Queue[TokenOutput | BaseException] = asyncio.Queue()
        self._give_up = give_up

    def __aiter__(self) -> TokenStream:
        return self

    async def __anext__(self) -> TokenOutput:
        while self._unfinished:
            arrived = await self._arrived.get()
            if isinstance(arrived, BaseException):
                self._unfinished.clear()
                raise arrived
            if arrived.request_id not in self._unfinished:
                continue  # made in the step that was under way when the request was given up
            if arrived.finish_reason is not None:
                self._unfinished.discard(arrived.request_id)
            if arrived.finish_reason == "error":
                raise arrived.fault or NotFinite()
            return arrived
        raise StopAsyncIteration

    def close(self) -> None:
        """Give up what has not finished; its pages are free before the engine's next step. Safe to call twice."""
        self.cancel(tuple(self._unfinished))

    def cancel(self, request_ids: Sequence[str]) -> None:
        """Give up some of the requests; none of their tokens is handed out any more."""
        given_up = tuple(request_id for request_id in request_ids if request_id in self._unfinished)
        self._unfinished.difference_update(given_up)
        if given_up:
            self._give_up(given_up)

    def deliver(self, arrived: TokenOutput | BaseException) -> None:
        self._arrived.put_nowait(arrived)

    def settle(self, refusal: BaseException | None) -> None:
        """The engine took all of the requests, or refused one and holds none."""
        if self.accepted.done():
            return  # whoever opened the stream was cancelled meanwhile
        if refusal is None:
            self.accepted.set_result(None)
        else:
            self.accepted.set_exception(refusal)


class EngineWorker:
    """Loads an engine in a thread of its own, then steps it while there is work and sleeps while there is none.

    All methods are for the event loop that called `start`. `stats` is the engine's account after its last step,
    None while loading; `last_progress` is the time of that step on the monotonic clock, for a watchdog.
    """

    def __init__(self, load: Callable[[], Engine]) -> None:
        self.state = WorkerState.LOADING
        self.failure: BaseException | None = None
        self.failure_traceback = ""
        self.max_model_len = 0
        self.stats: EngineStats | None = None
        self.last_progress = time.monotonic()
        self.ready = asyncio.Event()
        """Set once the engine is loaded or has failed to load; `state` says which."""
        self.ended = asyncio.Event()
        """Set once the thread has left the engine for good."""
        self._load = load
        self._commands: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._streams: dict[str, TokenStream] = {}
        self._thread = threading.Thread(target=self._run, name="day0-engine", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def healthy(self) -> bool:
        return self.state is WorkerState.READY

    @property
    def num_streaming(self) -> int:
        """Requests handed to the engine and not finished yet."""
        return len(self._streams)

    def start(self) -> None:
        """Begin to load; `ready` is set when it is over."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def open(self, requests: Sequence[Request], images: PromptImages | None = None) -> TokenStream:
        """Hand requests to the engine, all or none; returns once it has taken them, raises what it refused them for.

        `images` are among the tokens of every one of them, and are encoded once.
        """
        if self.state is not WorkerState.READY:
            raise NotAccepting(f"the engine takes no requests: {self.state}")
        stream = TokenStream(requests, self._give_up)
        for request in requests:
            assert request.id not in self._streams, f"request id {request.id} is in use"
            self._streams[request.id] = stream
        self._commands.put(_Add(tuple(requests), stream, images))
        try:
            await stream.accepted
        except BaseException:
            stream.close()
            raise
        return stream

    async def generate(self, request: Request) -> AsyncIterator[TokenOutput]:
        """The tokens of one request; leaving the iterator early aborts it."""
        stream = await self.open((request,))
        try:
            async for output in stream:
                yield output
        finally:
            stream.close()

    def drain(self) -> None:
        """Take no more requests, finish those taken, then end the thread; `ended` is set after that."""
        if self.state in (WorkerState.LOADING, WorkerState.READY):
            self.state = WorkerState.DRAINING
            self._commands.put(_Drain())

    def stop(self) -> None:
        """End the thread after the step it is in; requests in flight are told so."""
        if self.state in (WorkerState.LOADING, WorkerState.READY):
            self.state = WorkerState.DRAINING
        self._commands.put(_Stop())

    def join(self, timeout: float) -> bool:
        """Wait for the thread, blocking; False where it is still inside the engine after `timeout` seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # On the event loop, called by the thread.

    def _loaded(self, max_model_len: int) -> None:
        self.max_model_len = max_model_len
        if self.state is WorkerState.LOADING:
            self.state = WorkerState.READY
        self.ready.set()

    def _deliver(self, outputs: Sequence[TokenOutput]) -> None:
        for output in outputs:
            stream = self._streams.get(output.request_id)
            if stream is None:
                continue  # given up after the step that made this token had begun
            stream.deliver(output)
            if output.finish_reason is not None:
                del self._streams[output.request_id]

    def _close(self, failure: BaseException | None) -> None:
        self.state = WorkerState.FAILED if failure else WorkerState.STOPPED
        told: Day0Error = NotAccepting("the server stopped before the request was finished")
        if failure is not None:
            told = EngineFailed(f"the engine failed while the request was running: {type(failure).__name__}: {failure}")
        for stream in set(self._streams.values()):
            stream.settle(told)
            stream.deliver(told)
        self._streams.clear()
        self.ready.set()
        self.ended.set()

    def _give_up(self, request_ids: tuple[str, ...]) -> None:
        for request_id in request_ids:
            self._streams.pop(request_id, None)
        self._commands.put(_Abort(request_ids))

    # In the thread.

    def _run(self) -> None:
        with ExitStack() as ending:
            ending.push(self._end)
            engine = self._load()
            ending.callback(engine.close)
            engine.notify(lambda: self._commands.put(_Look()))
            self._note(engine)
            self._post(self._loaded, engine.max_model_len)
            self._serve(engine)

    def _serve(self, engine: Engine) -> None:
        draining = False
        while not (draining and not engine.has_work()):
            for command in self._next_commands(wait=not engine.has_work()):
                match command:
                    case _Add():
                        self._add(engine, command)
                    case _Abort(request_ids):
                        for request_id in request_ids:
                            engine.abort(request_id)
                    case _Look():
                        engine.check()
                    case _Drain():
                        draining = True
                    case _Stop():
                        return
            self._note(engine)
            if engine.has_work():
                outputs = engine.step()
                self._note(engine)
                self._post(self._deliver, outputs)

    def _next_commands(self, *, wait: bool) -> Iterator[_Command]:
        """What has arrived; with `wait`, sleeps until something has."""
        if wait:
            yield self._commands.get()
        while not self._commands.empty():
            yield self._commands.get()

    def _add(self, engine: Engine, command: _Add) -> None:
        added: list[str] = []
        refusal: Day0Error | None = None
        try:
            spans = _encoded(engine, command.images) if command.images is not None else ()
            for request in command.requests:
                engine.add(replace(request, images=spans) if spans else request)
                added.append(request.id)
        except Day0Error as error:
            refusal = error
        if refusal is not None:
            for request_id in added:
                engine.abort(request_id)
        self._post(command.stream.settle, refusal)

    def _note(self, engine: Engine) -> None:
        self.stats = engine.stats()
        self.last_progress = time.monotonic()

    def _post(self, callback: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _end(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """However the thread ends, nobody is left waiting for it."""
        if failure is not None:
            self.failure = failure
            self.failure_traceback = "".join(traceback.format_exception(failure))
        self._post(self._close, failure)
        return True


def _encoded(engine: Engine, images: PromptImages) -> tuple[ImageSpan, ...]:
    """The images' embeddings at their places, by the engine's own tower."""
    tower = engine.vision
    if not isinstance(tower, ImageEncoder):
        raise InputError("the model runs without its vision tower, so it takes no images", where="messages")
    return image_spans(images.places, tower.encode_images(images.inputs), tower.cells(images.inputs))
