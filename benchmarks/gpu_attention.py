"""Triton kernels of attention and the delta rule on an accelerator: right first, then timed against roofline and peers.

    python benchmarks/gpu_attention.py            # prints tables in markdown; exits 1 if an output is not right

Every output is compared with the plain reference in float32 on fresh random inputs. Times are medians of graph replays
whose calls rotate over states or caches larger than the second-level cache where one is smaller. The roofline is the
bytes that must move over 4.27 TB/s or the products over 687 TFLOP/s, both measured on an H200, whichever takes longer.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from time import gmtime, strftime

import torch
from torch.nn import functional

from day0.runtime.ops import gated_deltanet as delta
from day0.runtime.ops import kda, lightning_indexer
from day0.runtime.ops import latent_attention as plain_latent
from day0.runtime.ops import paged_attention as plain_paged
from day0.runtime.ops.kernels import delta_step, index_scores, latent_attention, paged_attention, select

COPY, PRODUCTS = 4.27e6, 687e6
"""Bytes and floating-point operations a microsecond."""
HEADS, LATENT, ROPE, CHOSEN = 128, 512, 64, 2048  # DeepSeek-V3.2
INDEX_HEADS, INDEX_DIM = 64, 128
Call = Callable[[], object]


@dataclass
class Report:
    """Lines of markdown, and what was not right."""

    device: torch.device
    wrong: list[str] = field(default_factory=list)

    def check(self, name: str, found: torch.Tensor, wanted: torch.Tensor, allowed: float) -> float:
        error = float((found.double() - wanted.double()).norm() / wanted.double().norm())
        if not error <= allowed:  # NaN is never right
            self.wrong.append(f"{name}: error {error:.1e}, allowed {allowed:.0e}")
        return error

    def table(self, title: str, columns: Sequence[str]) -> None:
        print(f"\n### {title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")

    def row(self, *cells: object) -> None:
        print("| " + " | ".join(f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in cells) + " |")


def microseconds(calls: Sequence[Call], inner: int = 8, repeats: int = 7) -> float:
    """Median time of a call; `inner` of them, going round, are one captured graph."""
    for call in calls:
        call()
    torch.accelerator.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(inner):
            calls[number % len(calls)]()
    graph.replay()
    times = []
    for _ in range(repeats):
        start, end = (torch.Event(device="cuda", enable_timing=True) for _ in "se")
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / inner)
    return statistics.median(times)


def poisoned_slots(sequences: int, length: int, device: torch.device) -> torch.Tensor:
    """Slots of sequences whose pages of 64 lie anywhere."""
    pages = torch.randperm(sequences * length // 64, device=device)
    return (pages[:, None] * 64 + torch.arange(64, device=device)).view(sequences, length)


def recurrent(report: Report) -> None:
    columns = ("states", "batch", "error", "us", "roofline us", "of copy", "fla-core us")
    report.table("Recurrent decode, states in place by slot (float32)", columns)
    device = report.device
    fla = _fla_step()
    for form, heads, key_heads, step in (
        ("KDA, 96 heads of 128", 96, 96, kda.kda_recurrent),
        ("Gated DeltaNet, 64 heads of 128, 16 of keys", 64, 16, delta.gated_delta_recurrent),
    ):
        peer = fla if form.startswith("KDA") else None
        for batch in (1, 16, 64):
            inputs = _delta_inputs(batch, 1, heads, key_heads, form.startswith("KDA"), device)
            sets = max(2, 600_000_000 // (batch * heads * 65536))
            pool = torch.randn(sets * batch, heads, 128, 128, device=device)
            slots = torch.randperm(len(pool), device=device).view(sets, batch)
            wanted, moved = step(*inputs, pool[slots[0]], 0.09)
            found = delta_step.delta_steps_in_place(*inputs, pool, slots[0], 0.09)
            error = max(report.check(f"{form} {batch}", found, wanted, 1e-5),
                        report.check(f"{form} {batch} states", pool[slots[0]], moved, 1e-5))  # fmt: skip
            calls = [partial(delta_step.delta_steps_in_place, *inputs, pool, s, 0.09) for s in slots]
            us, roof = microseconds(calls, inner=max(8, min(sets, 32))), batch * heads * 131072 / COPY
            views = [pool[n * batch : (n + 1) * batch] for n in range(sets)]
            theirs = microseconds([partial(peer, inputs, v) for v in views], max(8, min(sets, 32))) if peer else None
            report.row(form, batch, f"{error:.1e}", us, roof, f"{roof / us:.0%}", theirs or "-")


def _delta_inputs(batch: int, length: int, heads: int, key_heads: int, channels: bool, device: torch.device) -> list:
    make = lambda *shape: torch.randn(batch, length, *shape, device=device)  # noqa: E731
    q, k = (functional.normalize(make(key_heads, 128), dim=-1) for _ in "qk")
    g = -make(heads, *((128,) if channels else ())).abs()
    return [q, k, make(heads, 128), g, torch.sigmoid(make(heads))]


def _fla_step() -> Callable[[list, torch.Tensor], object] | None:
    """fla-core's recurrent KDA on a state in place, None where it is not installed."""
    try:
        from fla.ops.kda.fused_recurrent import fused_recurrent_kda_fwd
    except ImportError:
        return None

    def step(inputs: list, states: torch.Tensor) -> object:
        return fused_recurrent_kda_fwd(*inputs, initial_state=states, inplace_final_state=True, scale=0.09)

    return step


def indexer(report: Report) -> None:
    columns = ("batch", "context", "error", "scores us", "roofline us", "of copy", "select us", "torch.topk us")
    report.table("Lightning indexer: 64 heads of 128, bfloat16 keys, top 2048, exact ties", columns)
    device = report.device
    for batch, context in ((1, 16384), (1, 131072), (16, 131072)):
        caches = torch.randn(3 if batch == 1 else 1, batch * context, INDEX_DIM, device=device).bfloat16()
        slots, before = poisoned_slots(batch, context, device), torch.full((batch,), context - 1, device=device)
        q = torch.randn(batch, 1, INDEX_HEADS, INDEX_DIM, device=device).bfloat16()
        weights = torch.randn(batch, 1, INDEX_HEADS, device=device)
        arguments = slots, before, 0.01, 1, slice(0, 1)
        scores, ready = index_scores.visible_scores(q, weights, caches[0], *arguments)
        wanted = torch.cat(
            [lightning_indexer.index_scores(q[[n]], weights[[n]], caches[0][slots[[n]]], 0.01) for n in range(batch)]
        )
        error = report.check(f"scores {batch} {context}", scores, wanted, 1e-5)
        _check_selection(report, scores, ready)
        us = microseconds([partial(index_scores.visible_scores, q, weights, c, *arguments) for c in caches], 9)
        out = torch.empty(batch, CHOSEN, dtype=torch.int64, device=device)
        flat, seen = scores[:, 0].contiguous(), ready[:, 0]
        chosen = microseconds([partial(select.choose_largest, flat, seen, CHOSEN, out)])
        topk = microseconds([partial(torch.topk, flat, CHOSEN)])
        roof = batch * context * (2 * INDEX_DIM + 12) / COPY
        report.row(batch, context, f"{error:.1e}", us, roof, f"{roof / us:.0%}", chosen, topk)


def _check_selection(report: Report, scores: torch.Tensor, ready: torch.Tensor) -> None:
    """On the scores, on the same rounded so that thousands tie, and with one number throughout."""
    for name, drawn in (("scores", scores), ("ties", (scores * 4).round()), ("one number", torch.zeros_like(scores))):
        out = torch.full((*ready.shape, CHOSEN), -7, dtype=torch.int64, device=scores.device)
        select.choose_largest(drawn.flatten(0, 1).contiguous(), ready.flatten(), CHOSEN, out.view(-1, CHOSEN))
        if not torch.equal(out, lightning_indexer.choose_entries(drawn, ready, CHOSEN)):
            report.wrong.append(f"selection among {name} is not the reference's")


def latents(report: Report) -> None:
    columns = ("kind", "batch", "context", "error", "us", "roofline us", "of roofline", "torch products us")
    report.table("Decode over latents: 128 heads, 576 wide, bfloat16, pages of 64", columns)
    for kind, batch, context in (
        *(("2048 chosen", batch, context) for batch in (1, 16, 64) for context in (16384, 131072)),
        *(("all", batch, 131072) for batch in (1, 16)),
    ):
        cache = torch.randn(batch * context, LATENT + ROPE, device=report.device, dtype=torch.bfloat16)
        slots = poisoned_slots(batch, context, report.device)
        q = torch.randn(batch, 1, HEADS, LATENT + ROPE, device=report.device).bfloat16()
        parts, before = q.split((LATENT, ROPE), dim=-1), torch.full((batch,), context - 1, device=report.device)
        if kind == "all":
            keys, last, ours, plain = (
                context,
                before,
                *(m.paged_mla_attention for m in (latent_attention, plain_latent)),
            )
        else:
            places = torch.rand(batch, context, device=report.device).topk(CHOSEN).indices.sort().values
            keys, last = CHOSEN, places[:, None]
            ours, plain = (module.sparse_mla_attention for module in (latent_attention, plain_latent))
        found = ours(*parts, cache, slots, last, 0.04)
        few = [x[:1] for x in (*parts, slots, last)]  # the reference is slow and wants room: one sequence of them
        wanted = plain(few[0].float(), few[1].float(), cache, few[2], few[3], 0.04)
        error = report.check(f"latents {kind} {batch} {context}", found[:1], wanted, 6e-3)
        us = microseconds([partial(ours, *parts, cache, slots, last, 0.04)], 4)
        roof = max(batch * keys * (LATENT + ROPE) * 2 / COPY, batch * HEADS * keys * (2 * LATENT + ROPE) * 2 / PRODUCTS)
        beside = microseconds([partial(_torch_latents, q, cache)], 2, 3) if kind == "all" else "-"
        report.row(kind, batch, context, f"{error:.1e}", us, roof, f"{roof / us:.0%}", beside)


def _torch_latents(q: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    """The peer: two products and a softmax in bfloat16 over caches that already lie in order."""
    rows = cache.view(q.shape[0], -1, LATENT + ROPE)
    return torch.softmax(q[:, 0] @ rows.mT * 0.04, dim=-1) @ rows[..., :LATENT]


def grouped(report: Report) -> None:
    columns = ("batch", "context", "heads", "window", "error", "us", "of copy", "SDPA us", "torch-sdpa provider us")
    report.table("Decode over paged keys and values, bfloat16; SDPA reads caches that already lie in order", columns)
    for batch, context, heads, kv_heads, dim, window in (
        (1, 131072, 32, 4, 128, None),
        (16, 32768, 32, 4, 128, None),
        (64, 4096, 32, 8, 128, None),
        (64, 8192, 64, 8, 64, 128),
    ):
        caches = torch.randn(2, batch * context, kv_heads, dim, device=report.device, dtype=torch.bfloat16)
        slots = poisoned_slots(batch, context, report.device)
        q = torch.randn(batch, 1, heads, dim, device=report.device).bfloat16()
        before = torch.full((batch,), context - 1, device=report.device)
        options = before, dim**-0.5, window
        found = paged_attention.paged_gqa_attention(q, *caches, slots, *options)
        wanted = plain_paged.paged_gqa_attention(q[:1].float(), *caches, slots[:1], before[:1], *options[1:])
        error = report.check(f"grouped {batch} {context}", found[:1], wanted, 6e-3)
        us = microseconds([partial(paged_attention.paged_gqa_attention, q, *caches, slots, *options)])
        seen = context if window is None else window
        k, v = (x[: batch * seen].view(batch, seen, kv_heads, dim).transpose(1, 2) for x in caches)
        attend = functional.scaled_dot_product_attention
        sdpa = min(
            microseconds([partial(attend, q.transpose(1, 2), k, v, enable_gqa=True)]),
            microseconds([partial(attend, q.view(batch, kv_heads, -1, dim), k, v)]),
        )
        provider = microseconds([partial(plain_paged.paged_gqa_attention_sdpa, q, *caches, slots, *options)], 2, 3)
        roof = batch * seen * kv_heads * dim * 4 / COPY
        shape = f"{heads}/{kv_heads} of {dim}"
        report.row(batch, context, shape, window or "-", f"{error:.1e}", us, f"{roof / us:.0%}", sdpa, provider)


def prefill(report: Report) -> None:
    columns = ("operator", "error", "us", "TFLOP/s")
    report.table("Sparse prefill: 512 new tokens behind 15,872, one sequence", columns)
    context, length, device = 16384, 512, report.device
    cache = torch.randn(context, LATENT + ROPE, device=device, dtype=torch.bfloat16)
    slots, before = poisoned_slots(1, context, device), torch.tensor([context - length], device=device)
    index_cache = torch.randn(context, INDEX_DIM, device=device).bfloat16()
    index_q = torch.randn(1, length, INDEX_HEADS, INDEX_DIM, device=device).bfloat16()
    weights = torch.randn(1, length, INDEX_HEADS, device=device)
    arguments = index_q, weights, index_cache, slots, before, CHOSEN, 0.01
    ids = index_scores.lightning_indexer_topk(*arguments)
    scores, ready = index_scores.visible_scores(*arguments[:5], 0.01, 1, slice(0, length))
    if not torch.equal(ids, lightning_indexer.choose_entries(scores, ready, CHOSEN)):
        report.wrong.append("the choice of a prefill is not the reference's")
    us = microseconds([partial(index_scores.lightning_indexer_topk, *arguments)], 2, 3)
    report.row("lightning_indexer_topk", "exact", us, length * context * INDEX_HEADS * INDEX_DIM * 2 / us / 1e6)
    q = torch.randn(1, length, HEADS, LATENT + ROPE, device=device).bfloat16().split((LATENT, ROPE), dim=-1)
    found = latent_attention.sparse_mla_attention(*q, cache, slots, ids, 0.04)
    wanted = plain_latent.sparse_mla_attention(*(x[:, :32].float() for x in q), cache, slots, ids[:, :32], 0.04)
    error = report.check("sparse prefill", found[:, :32], wanted, 6e-3)
    us = microseconds([partial(latent_attention.sparse_mla_attention, *q, cache, slots, ids, 0.04)], 2, 3)
    flops = length * HEADS * CHOSEN * (2 * LATENT + ROPE) * 2
    report.row("sparse_mla_attention", f"{error:.1e}", us, flops / us / 1e6)


def main() -> int:
    torch.manual_seed(int(strftime("%j%H%M%S", gmtime())))  # fresh inputs in every run
    device = torch.accelerator.current_accelerator()
    assert device is not None, "needs an accelerator"
    report = Report(device)
    names = ["torch", "triton"]
    with suppress(PackageNotFoundError):
        names += ["fla-core"] * bool(version("fla-core"))
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    print(f"{torch.cuda.get_device_name()}, {versions}, {strftime('%Y-%m-%d', gmtime())}")
    source, target = torch.randn(2, 1 << 29, device=device)
    torch.accelerator.synchronize()
    start, end = (torch.Event(device=device, enable_timing=True) for _ in "se")
    for event in (start, end):
        event.record()
        target.copy_(source)
    end.synchronize()
    print(f"copy {2 * source.numel() * 4 / start.elapsed_time(end) / 1e6:.0f} GB/s")
    for section in (recurrent, indexer, latents, grouped, prefill):
        section(report)
        torch.accelerator.empty_cache()
    print("\n" + ("Wrong: " + "; ".join(report.wrong) if report.wrong else "All outputs are right."))
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
