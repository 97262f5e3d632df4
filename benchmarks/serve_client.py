"""A served model as a process, and the load that benchmarks/serve.py puts on it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import psutil

START_SECONDS = 180.0
CLIENT = httpx.Limits(max_connections=None, max_keepalive_connections=0)


@dataclass(frozen=True, slots=True)
class Ask:
    """One greedy completion: a text or token ids, and how many tokens are wanted."""

    prompt: str | list[int]
    tokens: int


@dataclass(frozen=True, slots=True)
class Answered:
    """What one stream gave. `whole` where it came to its end mark; `tokens` as usage counts them."""

    text: str
    tokens: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Server:
    """A running server that takes OpenAI's API."""

    url: str
    process: psutil.Process

    def resident(self) -> int:
        """Bytes of memory of the server and its children."""
        return sum(one.memory_info().rss for one in (self.process, *self.process.children(recursive=True)))


@contextmanager
def running(argv: Sequence[str], environment: dict[str, str]) -> Iterator[Server]:
    """Start `argv --port P`, wait for /health, and end it with its children."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [*argv, "--port", str(port)], env=os.environ | environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    server = Server(f"http://127.0.0.1:{port}", psutil.Process(process.pid))
    try:
        _until_ready(server, process)
        yield server
    finally:
        children = server.process.children(recursive=True) if process.poll() is None else []
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
        for child in children:
            if child.is_running():
                child.kill()


def _until_ready(server: Server, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"the server ended with {process.returncode} before it was ready")
        try:
            if httpx.get(f"{server.url}/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"the server was not ready after {START_SECONDS:.0f} seconds")


async def streamed(client: httpx.AsyncClient, server: Server, model: str, ask: Ask) -> Answered:
    """One request as a stream, read to its end."""
    body = {
        "model": model, "prompt": ask.prompt, "max_tokens": ask.tokens, "temperature": 0, "ignore_eos": True,
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    text, tokens, whole = "", 0, False
    try:
        async with client.stream("POST", f"{server.url}/v1/completions", json=body) as response:
            async for line in response.aiter_lines():
                if line == "data: [DONE]":
                    whole = True
                elif line.startswith("data: "):
                    event = json.loads(line[6:])
                    text += "".join(choice["text"] for choice in event.get("choices", ()))
                    tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
    except httpx.TransportError:
        pass  # a stream that was lost shows as one without its end
    return Answered(text, tokens, whole)


async def all_at_once(server: Server, model: str, asks: Sequence[Ask]) -> tuple[list[Answered], float]:
    """All requests side by side; their answers in order, and the seconds until the last had ended."""
    async with httpx.AsyncClient(timeout=None, limits=CLIENT) as client:
        begun = time.monotonic()
        answers = await asyncio.gather(*(streamed(client, server, model, ask) for ask in asks))
        return list(answers), time.monotonic() - begun


async def one_by_one(server: Server, model: str, asks: Sequence[Ask]) -> list[Answered]:
    """Each request alone on the server."""
    async with httpx.AsyncClient(timeout=None) as client:
        return [await streamed(client, server, model, ask) for ask in asks]
