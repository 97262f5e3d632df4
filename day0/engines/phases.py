"""Where an engine's start has come to, read from its log: our phases, by engine and version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from day0.plan.engine_version import Release, is_since

PHASES = ("start", "resolve", "load", "convert", "allocate", "warm up", "ready")
"""In order; an engine may leave some out. "ready" is never read from a log: a checked forward alone says it."""


@dataclass(frozen=True, slots=True)
class Sign:
    """A line that matches `pattern` shows that `phase` has begun. A group `share` is the percentage of it that is done.

    `since` is the first version that writes it so.
    """

    phase: str
    pattern: re.Pattern[str]
    since: Release | None = None


def _sign(phase: str, pattern: str, since: tuple[int, ...] | None = None) -> Sign:
    return Sign(phase, re.compile(pattern), Release(since, "") if since else None)


SIGNS: Mapping[str, tuple[Sign, ...]] = {
    "vllm": (
        _sign("resolve", r"Resolved architecture"),
        _sign("resolve", r"Initializing a V1 LLM engine"),
        _sign("load", r"Starting to load model"),
        _sign("load", r"Loading \w+ checkpoint shards: +(?P<share>\d+)% Completed"),
        _sign("convert", r"Loading weights took"),
        _sign("convert", r"(Using cache directory: .* for vLLM's torch.compile|Dynamo bytecode transform time)"),
        _sign("allocate", r"(GPU|CPU) KV cache size: "),
        _sign("allocate", r"Available KV cache memory: "),
        _sign("warm up", r"Capturing CUDA graphs?.*?: +(?P<share>\d+)%"),
        _sign("warm up", r"init engine \(profile, create kv cache, warmup model\) took"),
        _sign("warm up", r"Starting vLLM( API)? server"),
    ),
    "sglang": (
        _sign("resolve", r"server_args=ServerArgs"),
        _sign("resolve", r"Init torch distributed begin"),
        _sign("load", r"Load weight begin"),
        _sign("load", r"Loading \w+ checkpoint shards: +(?P<share>\d+)% Completed"),
        _sign("convert", r"Load weight end"),
        _sign("allocate", r"KV Cache is allocated|Memory pool end"),
        _sign("warm up", r"Capture cuda graph begin"),
        _sign("warm up", r"Capture .* begin\.", (0, 5, 23)),
        _sign("warm up", r"Capturing batches.*?: +(?P<share>\d+)%"),
        _sign("warm up", r"max_total_num_tokens=\d+"),
    ),
    "transformers": (
        _sign("load", r"Loading (weights|checkpoint shards): +(?P<share>\d+)%"),
        _sign("warm up", r"Application startup complete|Uvicorn running on"),
    ),
}
"""What each engine writes: vLLM 0.11 to 0.32, SGLang 0.5 to 0.5.23, transformers 5.19 to 5.24."""


@dataclass(slots=True)
class Progress:
    """The phase that a start is in; it never goes back. `seconds` are those of the phases that are over."""

    engine: str
    version: str | None
    began: float
    phase: str = PHASES[0]
    share: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def read(self, line: str, now: float) -> bool:
        """Take in a line of the log at `now`, seconds of any clock; whether a later phase has begun."""
        for sign in SIGNS[self.engine]:
            if sign.since is not None and not is_since(self.version, sign.since):
                continue
            if (found := sign.pattern.search(line)) is None:
                continue
            has_begun = self.enter(sign.phase, now)
            share = found.groupdict().get("share")
            if sign.phase == self.phase and share is not None:
                self.share = int(share)
            if has_begun:
                return True
        return False

    def enter(self, phase: str, now: float) -> bool:
        """Begin a phase if it comes after the present one; whether it does."""
        if PHASES.index(phase) <= PHASES.index(self.phase):
            return False
        self.seconds[self.phase] = now - self.began
        self.phase, self.began, self.share = phase, now, None
        return True
