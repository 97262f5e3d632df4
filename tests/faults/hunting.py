"""The hunt for a fault: sound and faulty engine over one prompt, both traced, and what `day0 compare` makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from day0.numerics.decisions import CHOICE_POINTS
from day0.numerics.floor import Floor, measured_floor
from day0.numerics.reading import Recording
from day0.numerics.recording import Keep, Recorder
from day0.numerics.walk import Report, Sides, compare_recordings
from day0.plan.settings import EngineSettings
from day0.profile.read import read_profile
from day0.runtime.batch import ImageSpan
from day0.runtime.engine import load as loading
from day0.runtime.engine.engine import Engine
from day0.runtime.engine.tracing import traced_steps
from day0.runtime.ops.registry import Operators, choose_operators
from day0.runtime.parallel.ranks import ALONE, Ranks
from day0.runtime.trace import Trace
from day0.runtime.vision.encoder import ImageEncoder
from day0.source.resolve import resolve

IDS = tuple((37 * place + 11) % 250 for place in range(24))
NEW = 3
"""Greedy tokens: one prefill and two steps of one token each."""
GRIDS = ((1, 6, 4), (1, 4, 6))
"""Two pictures that are no squares: frames, rows, columns of patches."""
How = Literal["operator", "weights", "config", "engine", "pictures", "ranks"]
Edit = Callable[[Engine], None]
Replaced = Mapping[int, Mapping[str, Tensor]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, and what the hunt ought to say of it.

    `operators` run in the place of others from loading on, `edit` changes the loaded engine, `config` the model's own
    before it is read. `layer`, `point` and `kind` are what is right to name; `step` is 0 for the prompt. `chunk` cuts
    the faulty run's prompt, where the fault is one of chunks; `group` is how the ranks of a faulty run work together.
    `source` is the entry of a catalogue of real bugs.
    """

    id: str
    what: str
    model: str
    how: How
    layer: int | None
    point: str
    kind: str
    operators: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    edit: Edit | None = None
    config: Callable[[dict[str, Any]], None] | None = None
    group: type[Any] | None = None
    chunk: int | None = None
    step: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Named:
    """What the hunt named: of a report without a deviation the first choice that flipped, whose kind is its tie."""

    layer: int | None
    point: str
    kind: str
    step: int
    error: float | None


def load(
    folder: Path, operators: Mapping[str, Callable[..., Any]] | None = None, ranks: Ranks = ALONE, **settings: Any
) -> Engine:
    """An engine over a folder, float32 on the host; `operators` are put in the place of the chosen ones."""
    files = resolve(str(folder))
    options: dict[str, Any] = {"device": "cpu", "dtype": "float32", "max_num_seqs": 4, "max_model_len": 64}
    made = EngineSettings(**(options | settings))
    ops: Operators | None = None
    if operators:
        ops = choose_operators(torch.device("cpu"), torch.float32)
        for name, function in operators.items():
            ops = ops.replaced(name, function)
    with without_check():
        return loading.load_engine(files, read_profile(files), made, ops=ops, ranks=ranks)


@contextmanager
def without_check() -> Iterator[None]:
    """Loading ends with one checked forward, which a fault that gives NaN would not pass."""
    kept, loading._check_forward = loading._check_forward, lambda engine: None
    try:
        yield
    finally:
        loading._check_forward = kept


def recorded(
    engine: Engine,
    replaced: Replaced | None = None,
    chunk: int | None = None,
    *,
    pictures: bool = False,
    new_tokens: int = NEW,
) -> Recording:
    """Trace the prompt and `new_tokens`, with two pictures in it where the model is to see some."""
    recorder = Recorder(Keep())
    ids, images = shown(engine, recorder) if pictures else (IDS, ())

    def make(index: int, start: int, length: int) -> Trace:
        return Trace(
            observe=lambda name, tensor: recorder.take(index, start, length, name, tensor),
            replaced=(replaced or {}).get(index, {}),
        )

    steps = list(traced_steps(engine, ids, make, new_tokens=new_tokens, chunk=chunk, images=images))
    generated = tuple(step.next_id for step in steps if step.ends)
    return Recording("here", tuple(recorder.entries), recorder.tensors.__getitem__, ids, generated)


def shown(engine: Engine, recorder: Recorder) -> tuple[tuple[int, ...], tuple[ImageSpan, ...]]:
    """The prompt with two pictures in it, which the engine's tower reads and the recorder traces."""
    tower = engine.vision
    assert isinstance(tower, ImageEncoder)
    pixels = _pixels(engine, sum(frames * rows * columns for frames, rows, columns in GRIDS))
    trace = Trace(observe=lambda name, tensor: recorder.take(0, 0, len(tensor), name, tensor))
    embeddings = tower.encode(pixels, GRIDS, trace)
    merge = tower.spec.merge
    ids: list[int] = list(IDS[:5])
    spans = []
    for (_, rows, columns), own in zip(GRIDS, embeddings, strict=True):
        cells = (rows // merge[0], columns // merge[1])
        spans.append(ImageSpan(len(ids), own, cells))
        ids += [261] * len(own) + list(IDS[5:8])
    return tuple(ids), tuple(spans)


def _pixels(engine: Engine, patches: int) -> Tensor:
    """Random patches of all pictures, as the tower's first matrix takes them."""
    assert engine.vision is not None
    weight = next(tensor for name, tensor in engine.vision.named_parameters() if "patch_embed" in name)
    return torch.randn(patches, *weight.shape[1:], generator=torch.Generator().manual_seed(5))


def points(recording: Recording, operators: frozenset[str]) -> dict[int, dict[str, Tensor]]:
    """The tensors of some points by step, as another run is fed them."""
    found: dict[int, dict[str, Tensor]] = {}
    for entry in recording.entries:
        if entry.operator in operators:
            found.setdefault(entry.step, {})[entry.name] = recording.load(entry.key)
    return found


@dataclass(frozen=True)
class Sound:
    """A model without a fault: its trace, and the noise floor that a run in bfloat16 gives.

    `before` is an edit of sound and faulty engine alike. `ranks` says that several run the model, of which the prompt
    alone is traced.
    """

    folder: Path
    reference: Recording
    floor: Floor
    pictures: bool = False
    before: Edit | None = None
    ranks: bool = False

    @classmethod
    def of(cls, folder: Path, *, pictures: bool = False, before: Edit | None = None, ranks: bool = False) -> Sound:
        engine, coarse = load(folder), load(folder, dtype="bfloat16")
        for one in (engine, coarse):
            if before is not None:
                before(one)
        length = 1 if ranks else NEW
        reference = recorded(engine, pictures=pictures, new_tokens=length)
        floor = recorded(coarse, points(reference, CHOICE_POINTS), pictures=pictures, new_tokens=length)
        return cls(folder, reference, measured_floor(reference, floor), pictures, before, ranks)

    def compare(self, candidate: Recording, **others: Recording) -> Report:
        return compare_recordings(Sides(self.reference, candidate, self.floor, **others))  # type: ignore[arg-type]


def with_config(folder: Path, change: Callable[[dict[str, Any]], None], out: Path) -> Path:
    """The same checkpoint beside another config.json."""
    out.mkdir()
    for path in folder.iterdir():
        if path.name != "config.json":
            (out / path.name).symlink_to(path)
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (out / "config.json").write_text(json.dumps(config))
    return out


def named_by(report: Report) -> Named | None:
    """The first deviation, or the first flipped choice; None where the hunt noticed nothing."""
    if (first := report.first) is not None:
        return Named(first.layer, first.operator, first.kind, first.step, first.error)
    for choice in report.decisions:
        if choice.flips:
            counts = {"exact tie": choice.exact_ties, "near tie": choice.near_ties, "unknown": choice.unknown}
            kind = max(counts, key=counts.__getitem__)
            point = choice.tensor.partition(f"layers.{choice.layer}.")[2]
            return Named(choice.layer, point, kind, choice.step, None)
    return None
