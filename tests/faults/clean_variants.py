"""Ways of running a sound model that must raise no alarm: other types, chunks, pages, neighbours, kernels, ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from hunting import IDS, Sound, load, points, recorded
from rank_runs import recorded_by_ranks
from torch import Tensor

from day0.numerics.decisions import CHOICE_POINTS, FED_POINTS
from day0.numerics.reading import Recording
from day0.numerics.recording import Keep, Recorder
from day0.numerics.walk import Report
from day0.runtime.batch import Request
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.scheduler import Chunk
from day0.runtime.engine.sequence import Sequence
from day0.runtime.ops.registry import KERNELS
from day0.runtime.trace import Trace

PREFERRED = {
    name: kernels[0].function
    for name, kernels in KERNELS.items()
    if kernels[0].provider in ("torch-sdpa", "day0-chunked", "torch-grouped")
}
"""What engines take in the references' place once it is verified on a device."""


@dataclass(frozen=True, slots=True)
class Clean:
    """One model run in one way that is not the reference's."""

    model: str
    variant: str

    @property
    def id(self) -> str:
        return f"{self.model}: {self.variant}"


def _cases() -> Iterator[Clean]:
    for model in ("kimi-k3", "qwen3-30b-a3b", "glm-5.2", "deepseek-v4-pro", "qwen3-next-80b-a3b", "gpt-oss-120b"):
        for variant in ("chunks of 1", "chunks of 7", "larger pages", "streamed", "fed"):
            yield Clean(model, variant)
    for model in ("kimi-k3", "qwen3-next-80b-a3b", "gpt-oss-120b", "llama-3.1-8b", "minimax-m3"):
        yield Clean(model, "preferred kernels")
    for model in ("kimi-k3", "qwen3-next-80b-a3b", "glm-5.2", "minimax-m3"):
        yield Clean(model, "after others")
    for model in ("llama-3.1-8b", "qwen3-30b-a3b", "gpt-oss-120b"):
        yield Clean(model, "beside others")
    for model in ("llama-3.1-8b", "qwen3-30b-a3b", "qwen3-next-80b-a3b", "gpt-oss-120b"):
        yield Clean(model, "bfloat16")
        yield Clean(model, "float16")
    for model in ("llama-3.1-8b ranks", "gpt-oss-120b ranks", "qwen3-30b-a3b ranks", "llama-4-scout ranks"):
        yield Clean(model, "two ranks")
    for model in ("kimi-k3 pictures", "qwen3-vl-30b-a3b pictures"):
        yield Clean(model, "chunks of 7")


CLEAN = tuple(_cases())


def clean_report(case: Clean, sound: Sound, scratch: Path) -> Report:
    """What the comparison says of a run that has no fault."""
    reference, kind = sound.reference, case.variant
    if kind == "two ranks":
        return sound.compare(recorded_by_ranks(sound.folder, scratch / case.model))
    if kind in ("bfloat16", "float16"):
        engine = load(sound.folder, dtype=kind)
        free, replayed = recorded(engine), recorded(engine, points(reference, CHOICE_POINTS))
        return sound.compare(free, replayed=replayed)
    if kind == "beside others":
        return sound.compare(_in_a_batch(load(sound.folder)))
    if kind == "fed":
        return sound.compare(recorded(load(sound.folder), points(reference, FED_POINTS | CHOICE_POINTS)))
    engine = load(sound.folder, PREFERRED if kind == "preferred kernels" else None, **SETTINGS.get(kind, {}))
    if kind == "after others":
        list(engine.generate([Request(str(n), tuple(reversed(IDS[n:]))) for n in range(3)]))
    chunk = int(kind.split()[-1]) if kind.startswith("chunks") else None
    return sound.compare(recorded(engine, chunk=chunk, pictures=sound.pictures))


SETTINGS = {"larger pages": {"page_size": 64}, "streamed": {"offload": "disk"}}


def passes(case: Clean, report: Report) -> bool:
    """Equal; in a coarser type without a deviation and without a choice that is at fault. A batch is traced as far as
    its one step goes."""
    quiet = report.first is None and not any(choice.faults for choice in report.decisions)
    if case.variant in ("bfloat16", "float16"):
        return quiet
    if case.variant == "beside others":
        return quiet and all(node.verdict != "not checked" for node in report.nodes if node.step == 0)
    return report.verdict == "equal"


def _in_a_batch(engine: Engine) -> Recording:
    """The prompt's prefill among those of two other prompts, of which only its own rows are kept."""
    prompts = [tuple(reversed(IDS)), IDS, IDS[3:17]]
    chunks = []
    for number, ids in enumerate(prompts):
        sequence = Sequence.of(Request(str(number), ids), engine.cache.pages.page_size)
        sequence.lease = engine.cache.open()
        engine.cache.grow(sequence.lease, len(ids))
        chunks.append(Chunk(sequence, len(ids)))
    recorder, rows = Recorder(Keep()), slice(len(IDS), 2 * len(IDS))

    def keep(name: str, tensor: Tensor) -> None:
        recorder.take(0, 0, len(IDS), name, tensor[rows])

    logits = engine.runner.run(chunks, every_row=True, trace=Trace(observe=keep))
    for chunk in chunks:
        assert chunk.sequence.lease is not None
        engine.cache.close(chunk.sequence.lease)
    generated = (int(torch.argmax(logits[rows][-1])),)
    return Recording("a batch", tuple(recorder.entries), recorder.tensors.__getitem__, IDS, generated)
