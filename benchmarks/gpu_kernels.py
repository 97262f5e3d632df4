"""Checks and times the kernels of our own on an accelerator, against its own ceilings and against peers.

    python benchmarks/gpu_kernels.py [WORD ...] [--json FILE]     all cases, or those whose name has a word

Times are medians of replays of a captured graph over rotating inputs; ceilings are measured first, on random data.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import gpu_conversions
import gpu_experts
import gpu_pointwise
import torch
import triton
from gpu_case import Call, Case

CASES: Sequence[Case] = (*gpu_conversions.CASES, *gpu_experts.CASES, *gpu_pointwise.CASES)
"""Every case; a family of kernels adds its table here."""

REPLAYS = 7


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """What was measured of a case: microseconds, share of the roofline, error, and microseconds of the others."""

    kernel: str
    shape: str
    micros: float
    share: float
    wanted: float
    error: float
    allowed: float
    others: dict[str, float]


def micros(calls: Sequence[Call]) -> float:
    """Microseconds of a call: the median replay of a graph of at least eight of them."""
    for call in calls[:2]:
        call()
    torch.accelerator.synchronize()
    count = -(-8 // len(calls)) * len(calls)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(count):
            calls[number % len(calls)]()
    graph.replay()
    times = []
    for _ in range(REPLAYS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / count)
    return statistics.median(times)


def ceilings(device: torch.device) -> tuple[float, float]:
    """Bytes a second of a large copy, read and written, and operations a second of a bfloat16 product."""
    source = torch.randn(1 << 30, device=device)
    target = torch.empty_like(source)
    # A kernel, since what copies inside a graph is slower than kernels are.
    copied = 2 * source.nbytes / (micros([lambda: torch.neg(source, out=target)]) / 1e6)
    a, b = (torch.randn(8192, 8192, device=device).bfloat16() for _ in range(2))
    return copied, 2 * 8192**3 / (micros([lambda: a @ b]) / 1e6)


def measure(case: Case, device: torch.device, bandwidth: float, rate: float) -> Row:
    prepared = case.prepare(device)
    error = prepared.check()
    floor = max(case.bytes / bandwidth, case.flops / rate) * 1e6
    others = {f"peer {name}": micros(calls) for name, calls in prepared.peers.items()}
    others |= {name: micros(calls) for name, calls in prepared.variants.items()}
    found = micros(prepared.calls)
    return Row(case.kernel, case.shape, found, floor / found, case.wanted, error, case.allowed, others)


def rows(words: Sequence[str], device: torch.device, bandwidth: float, rate: float, broken: list[str]) -> Iterator[Row]:
    """What was measured, case by case; the names of those that raised go to `broken`."""
    for case in CASES:
        name = f"{case.kernel} {case.shape}"
        if words and not any(word in name for word in words):
            continue
        start = time.perf_counter()
        try:
            row = measure(case, device, bandwidth, rate)
        except Exception as fault:  # one broken kernel must not cost the lease of the others
            print(f"{name}: {type(fault).__name__}: {str(fault)[-600:]}", flush=True)
            broken.append(name)
            continue
        finally:
            torch.accelerator.empty_cache()
        verdict = "" if row.error <= row.allowed else "  WRONG"
        others = "  ".join(f"{key} {value:.1f}" for key, value in row.others.items())
        print(
            f"{name:52} {row.micros:9.1f} us {row.share:6.1%} (wanted {row.wanted:.0%}) error {row.error:.1e}{verdict}"
            f"  {others}  [{time.perf_counter() - start:.1f} s]",
            flush=True,
        )
        yield row


def wrong(found: Sequence[Row]) -> list[str]:
    """Cases whose error is not within what is allowed; an error that is not a number is none."""
    return [f"{row.kernel} {row.shape}" for row in found if not row.error <= row.allowed]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = torch.accelerator.current_accelerator()
    assert device is not None, "needs an accelerator"
    torch.manual_seed(0)
    bandwidth, rate = ceilings(device)
    chip = torch.cuda.get_device_name()
    versions = {"python": sys.version.split()[0], "torch": torch.__version__, "triton": triton.__version__}
    print(f"{chip}  {versions}  copy {bandwidth / 1e9:.0f} GB/s  product {rate / 1e12:.0f} TFLOP/s", flush=True)
    broken: list[str] = []
    found = list(rows(options.words, device, bandwidth, rate, broken))
    if options.json:
        written = [dataclasses.asdict(row) for row in found]
        facts = {"device": chip, "versions": versions, "copy": bandwidth, "product": rate, "rows": written}
        options.json.write_text(json.dumps(facts, indent=1))
    bad = broken + wrong(found)
    print("Wrong: " + "; ".join(bad) if bad else "All outputs are right." if found else "No case has these words.")
    return 1 if bad or not found else 0


if __name__ == "__main__":
    sys.exit(main())
