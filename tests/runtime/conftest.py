"""Engines for tests: real ones over small checkpoints, and one without a model whose tokens and faults are scripted.

In everything under this folder memory that nobody wrote is NaN, and random numbers are seeded.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from day0.errors import EnvironmentFault, InputError
from day0.plan.settings import EngineSettings
from day0.profile.read import read_profile
from day0.runtime.batch import NO_TOKEN, FinishReason, Request, TokenOutput
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.load import load_engine
from day0.runtime.ops.registry import Operators
from day0.source.resolve import resolve

# Tests of this folder share plain modules (closeness, kimi_k3_numpy) with those of the folders below.
sys.path.insert(0, str(Path(__file__).parent))

EngineMaker = Callable[..., Engine]
"""`(folder, *, ops=None, **settings) -> Engine`, float32 on the CPU unless the settings say otherwise."""


@pytest.fixture(scope="module", autouse=True)
def unwritten_memory_shows() -> Iterator[None]:
    """`torch.empty` gives NaN, and the largest value of an integer dtype."""
    enabled = torch.are_deterministic_algorithms_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.utils.deterministic.fill_uninitialized_memory = filled
    torch.use_deterministic_algorithms(enabled)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def make_engine() -> EngineMaker:
    def make(folder: Path, *, ops: Operators | None = None, **settings: object) -> Engine:
        files = resolve(str(folder))
        defaults: dict[str, object] = {"device": "cpu", "dtype": "float32", "max_num_seqs": 8}
        return load_engine(files, read_profile(files), EngineSettings(**(defaults | settings)), ops=ops)

    return make


@dataclass(frozen=True, slots=True)
class ScriptedStats:
    running: int
    waiting: int
    pages_total: int
    pages_free: int
    state_slots_total: int
    state_slots_free: int
    preemptions: int
    prompt_tokens: int
    reused_tokens: int
    generated_tokens: int
    steps: int


@dataclass(slots=True)
class ScriptedEngine:
    """Token i of a request is `(sum(prompt) + i) % 251`; each sequence holds one page. `fail_at` is a step number.

    A request that comes to the token `not_finite` ends there in an error.
    """

    delay: float = 0.0
    fail_at: int | None = None
    not_finite: int | None = None
    max_model_len: int = 256
    max_running: int = 4
    steps: int = 0
    aborted: list[str] = field(default_factory=list)
    requests: dict[str, Request] = field(default_factory=dict)
    generated: dict[str, int] = field(default_factory=dict)
    refuse: EnvironmentFault | None = None
    gone: EnvironmentFault | None = None
    wake: Callable[[], None] | None = None
    closed: bool = False

    @staticmethod
    def token(request: Request, number: int) -> int:
        return (sum(request.prompt_ids) + number) % 251

    def add(self, request: Request) -> None:
        if self.refuse is not None and len(self.requests) >= self.max_running:
            raise self.refuse
        if not request.prompt_ids:
            raise InputError("the prompt is empty", where="prompt_ids")
        self.requests[request.id] = request
        self.generated[request.id] = 0

    def abort(self, request_id: str) -> bool:
        self.aborted.append(request_id)
        return self.requests.pop(request_id, None) is not None

    def has_work(self) -> bool:
        return bool(self.requests)

    def step(self) -> list[TokenOutput]:
        self.steps += 1
        if self.delay:
            time.sleep(self.delay)
        if self.fail_at == self.steps:
            raise RuntimeError("the scripted fault")
        return [self._advance(request) for request in list(self.requests.values())[: self.max_running]]

    def stats(self) -> ScriptedStats:
        running = min(len(self.requests), self.max_running)
        waiting = len(self.requests) - running
        return ScriptedStats(
            running, waiting, 8, 8 - running, 8, 8 - running, 0, 0, 0, sum(self.generated.values()), self.steps
        )

    def check(self) -> None:
        if self.gone is not None:
            raise self.gone

    def notify(self, wake: Callable[[], None]) -> None:
        self.wake = wake

    def close(self) -> None:
        self.closed = True

    def _advance(self, request: Request) -> TokenOutput:
        number = self.generated[request.id]
        self.generated[request.id] += 1
        token = self.token(request, number)
        reason: FinishReason | None = None
        if token in request.params.stop_token_ids:
            reason = "stop"
        elif number + 1 == request.params.max_tokens:
            reason = "length"
        if token == self.not_finite:
            token, reason = NO_TOKEN, "error"
        if reason is not None:
            del self.requests[request.id]
        return TokenOutput(request.id, token, finish_reason=reason)


@pytest.fixture(scope="session")
def scripted_engine() -> type[ScriptedEngine]:
    return ScriptedEngine
