"""Latency and throughput from request timings, and the peak memory of this process."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType

import psutil

SAMPLE_SECONDS = 0.02
CURVE_SECONDS = 0.1
CURVE_POINTS = 600


@dataclass(frozen=True, slots=True)
class Timing:
    """One answered request: seconds from sending to each arrival, and the tokens that arrived in all."""

    arrivals: tuple[float, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """Figures of one closed-loop load. Medians in milliseconds; throughput counts generated tokens over wall time.

    Time per token is (last arrival - first) / (tokens - 1), so that the first token's wait is in `ttft_ms` alone.
    """

    concurrency: int
    requests: int
    ttft_ms: float
    ttft_p95_ms: float
    tpot_ms: float
    tpot_p95_ms: float
    tokens_per_s: float
    ttft_samples_ms: tuple[float, ...]
    tpot_samples_ms: tuple[float, ...]


def load_figures(timings: Sequence[Timing], concurrency: int, wall_seconds: float) -> LoadFigures:
    """Figures of the answered requests; at least one with two tokens is needed."""
    timed = [timing for timing in timings if timing.arrivals and timing.tokens > 1]
    assert timed, "no request gave two tokens"
    ttft = tuple(1e3 * timing.arrivals[0] for timing in timed)
    tpot = tuple(1e3 * (timing.arrivals[-1] - timing.arrivals[0]) / (timing.tokens - 1) for timing in timed)
    return LoadFigures(
        concurrency=concurrency,
        requests=len(timed),
        ttft_ms=statistics.median(ttft),
        ttft_p95_ms=percentile(ttft, 0.95),
        tpot_ms=statistics.median(tpot),
        tpot_p95_ms=percentile(tpot, 0.95),
        tokens_per_s=sum(timing.tokens for timing in timed) / wall_seconds,
        ttft_samples_ms=ttft,
        tpot_samples_ms=tpot,
    )


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample with at least `share` of the samples at or below it (no interpolation)."""
    ordered = sorted(samples)
    rank = -(-len(ordered) * share // 1)
    return ordered[max(0, min(len(ordered), int(rank)) - 1)]


def largest(values: Iterable[float]) -> float:
    """The largest value, 0 where there is none, and NaN where one is NaN, which `max` passes over."""
    found = list(values)
    return math.nan if any(math.isnan(value) for value in found) else max(found, default=0.0)


def share(value: float, allowed: float) -> float:
    """`value` as a multiple of what is allowed; where nothing is, any value is too much."""
    if allowed == 0.0:
        return 0.0 if value == 0.0 else math.inf
    return value / allowed


def private_bytes() -> int:
    """Memory of this process without mapped files and shared memory, in bytes."""
    info = psutil.Process().memory_info()
    return int(info.rss - getattr(info, "shared", 0))


class MemoryCurve:
    """Samples `private_bytes` in a thread while a block runs, a long run more coarsely: peaks are kept, not means."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._points: list[tuple[float, int]] = [(0.0, private_bytes())]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="day0-memory-curve", daemon=True)

    def __enter__(self) -> MemoryCurve:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._take()

    def points(self) -> dict[str, list[float]]:
        """`seconds` since the start and `bytes`, of equal length."""
        return {"seconds": [round(when, 3) for when, _ in self._points], "bytes": [size for _, size in self._points]}

    def _sample(self) -> None:
        pause = CURVE_SECONDS
        while not self._stop.wait(pause):
            self._take()
            if len(self._points) > CURVE_POINTS:
                pause *= 2
                pairs = zip(self._points[::2], self._points[1::2], strict=False)
                self._points = [max(pair, key=lambda point: point[1]) for pair in pairs]

    def _take(self) -> None:
        self._points.append((time.perf_counter() - self._started, private_bytes()))


class MemoryPeak:
    """Samples `private_bytes` in a thread while a block runs; `peak` is the largest value seen."""

    def __init__(self) -> None:
        self.before = private_bytes()
        self.peak = self.before
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="day0-memory-peak", daemon=True)

    def __enter__(self) -> MemoryPeak:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self.peak = max(self.peak, private_bytes())

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self.peak = max(self.peak, private_bytes())
