"""The soak of benchmarks/serve.py: answers, clients that leave in the middle, and garbage, while memory is watched."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from statistics import median

import httpx
from serve_client import Ask, Server, streamed

CLIENTS = 16
SAMPLE_SECONDS = 1.0
ALLOWED_GROWTH = 0.03
GARBAGE = (b"", b"{", b"[]", b'{"prompt": 5}', b'{"prompt": "x", "max_tokens": -1}', b"\xff" * 4096, b"[" * 50_000)


@dataclass(slots=True)
class Soak:
    """What happened: numbers of requests by kind, those that went wrong, and resident bytes over time."""

    answered: int = 0
    left: int = 0
    garbage: int = 0
    wrong: int = 0
    resident: tuple[int, ...] = ()

    def growth(self) -> float:
        """Of the median of the last third over that of the middle third; the first third is warm-up."""
        third = max(1, len(self.resident) // 3)
        return median(self.resident[-third:]) / median(self.resident[-2 * third : -third] or self.resident) - 1

    @property
    def flat(self) -> bool:
        return self.growth() <= ALLOWED_GROWTH


async def soaked(server: Server, model: str, seconds: float) -> Soak:
    """Load from CLIENTS clients for so many seconds."""
    seen = Soak()
    end = time.monotonic() + seconds
    async with httpx.AsyncClient(timeout=None) as client:
        clients = [asyncio.create_task(_client(client, server, model, number, end, seen)) for number in range(CLIENTS)]
        while time.monotonic() < end:
            seen.resident += (server.resident(),)
            await asyncio.sleep(SAMPLE_SECONDS)
        await asyncio.gather(*clients)
    return seen


async def _client(client: httpx.AsyncClient, server: Server, model: str, number: int, end: float, seen: Soak) -> None:
    choose = random.Random(number)
    while time.monotonic() < end:
        kind = choose.random()
        ask = Ask([choose.randrange(1000, 9000) for _ in range(choose.randrange(1, 200))], choose.randrange(1, 32))
        if kind < 0.5:
            answer = await streamed(client, server, model, ask)
            seen.answered += 1
            seen.wrong += not answer.whole or answer.tokens != ask.tokens
        elif kind < 0.8:
            await _leave(client, server, model, ask)
            seen.left += 1
        else:
            headers = {"Content-Type": "application/json"}
            content = choose.choice(GARBAGE)
            response = await client.post(f"{server.url}/v1/completions", content=content, headers=headers)
            seen.garbage += 1
            seen.wrong += response.status_code != 400


async def _leave(client: httpx.AsyncClient, server: Server, model: str, ask: Ask) -> None:
    """Ask for much and go after the first line."""
    body = {"model": model, "prompt": ask.prompt, "max_tokens": 500, "stream": True}
    async with client.stream("POST", f"{server.url}/v1/completions", json=body) as response:
        async for _ in response.aiter_lines():
            return
