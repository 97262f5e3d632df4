"""Prometheus metrics, under the names vLLM made common wherever they mean the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from day0.runtime.engine.worker import EngineWorker

LATENCY_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
TOKEN_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000)


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One HTTP request that reached the engine, told when it is over.

    `finish_reasons` has one entry per choice, "abort" for one that was given up. Times are seconds since the request
    was accepted; `first_token_seconds` is None where no token came.
    """

    request_id: str
    prompt_tokens: int
    completion_tokens: int
    finish_reasons: tuple[str, ...]
    first_token_seconds: float | None
    total_seconds: float

    def line(self) -> str:
        """The request in one line of the log."""
        first = "-" if self.first_token_seconds is None else f"{self.first_token_seconds * 1000:.0f}ms"
        return (
            f"request {self.request_id} prompt={self.prompt_tokens} generated={self.completion_tokens} "
            f"finish={','.join(self.finish_reasons)} ttft={first} total={self.total_seconds * 1000:.0f}ms"
        )


class Metrics:
    """The metrics of one application, in a registry of its own."""

    def __init__(self, worker: EngineWorker, model_name: str) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(worker, model_name))
        self._model_name = model_name
        self._success = Counter(
            "vllm:request_success", "Choices that have ended, by how.",
            ("model_name", "finished_reason"), registry=self._registry,
        )  # fmt: skip
        self._first_token = self._histogram(
            "vllm:time_to_first_token_seconds", "Seconds from a request's acceptance to its first token."
        )
        self._between = self._histogram("vllm:inter_token_latency_seconds", "Seconds between tokens of a choice.")
        self._total = self._histogram(
            "vllm:e2e_request_latency_seconds", "Seconds from a request's acceptance to its last token."
        )
        self._prompt = self._histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", TOKEN_BUCKETS)
        self._generated = self._histogram(
            "vllm:request_generation_tokens", "Tokens generated for a request.", TOKEN_BUCKETS
        )

    def observe(self, record: RequestRecord) -> None:
        for reason in record.finish_reasons:
            self._success.labels(self._model_name, reason).inc()
        if record.first_token_seconds is not None:
            self._first_token.observe(record.first_token_seconds)
        self._total.observe(record.total_seconds)
        self._prompt.observe(record.prompt_tokens)
        self._generated.observe(record.completion_tokens)

    def between_tokens(self, seconds: float) -> None:
        self._between.observe(seconds)

    def exposition(self) -> bytes:
        return generate_latest(self._registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...] = LATENCY_BUCKETS) -> Histogram:
        histogram = Histogram(name, text, ("model_name",), buckets=buckets, registry=self._registry)
        return histogram.labels(self._model_name)


class _EngineCollector(Collector):
    """Reads the engine's account when it is scraped, so that a step pays nothing for being measured."""

    def __init__(self, worker: EngineWorker, model_name: str) -> None:
        self._worker = worker
        self._model_name = model_name

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        yield self._gauge("day0:engine_ready", "1 where requests are taken.", float(self._worker.healthy))
        stats = self._worker.stats
        if stats is None:
            return
        used = 1.0 - stats.pages_free / stats.pages_total if stats.pages_total else 0.0
        yield self._gauge("vllm:num_requests_running", "Sequences in the batch.", stats.running)
        yield self._gauge("vllm:num_requests_waiting", "Sequences waiting for room in the batch.", stats.waiting)
        yield self._gauge("vllm:kv_cache_usage_perc", "Share of the cache pages in use; 1 is all of them.", used)
        yield self._gauge("day0:kv_cache_pages_free", "Cache pages not in use.", stats.pages_free)
        yield self._gauge("day0:state_slots_free", "Slots of recurrent state not in use.", stats.state_slots_free)
        yield self._counter("vllm:prompt_tokens", "Prompt tokens processed.", stats.prompt_tokens)
        yield self._counter("vllm:prefix_cache_queries", "Prompt tokens looked for in the cache.", stats.prompt_tokens)
        yield self._counter("vllm:prefix_cache_hits", "Prompt tokens found in the cache.", stats.reused_tokens)
        yield self._counter("vllm:generation_tokens", "Tokens generated.", stats.generated_tokens)
        yield self._counter("vllm:num_preemptions", "Sequences put back to wait for pages.", stats.preemptions)
        yield self._counter("day0:engine_steps", "Forward passes of the engine.", stats.steps)

    def _gauge(self, name: str, text: str, value: float) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, text, labels=("model_name",))
        family.add_metric((self._model_name,), value)
        return family

    def _counter(self, name: str, text: str, value: float) -> CounterMetricFamily:
        family = CounterMetricFamily(name, text, labels=("model_name",))
        family.add_metric((self._model_name,), value)
        return family
