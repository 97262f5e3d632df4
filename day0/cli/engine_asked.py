"""What `day0 serve` was asked of another engine; here, and not with its life, so that `--help` stays quick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class EngineAsked:
    """What the command line asks of another engine. `given` are the options that have words of the engine's own."""

    model: str
    engine: str
    plan: Path | None
    host: str
    port: int
    status_port: int | None
    given: Mapping[str, Value]
    api_key: str | None
    python: str | None
    engine_args: tuple[str, ...]
